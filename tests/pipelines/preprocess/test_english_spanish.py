"""The embedded corpus is frozen, because scores of models on it are compared over time."""

import hashlib

from tt.pipelines.preprocess import ready_made

# sha256 of all pairs, training first, as "source TAB target NEWLINE" in UTF-8. These are the values
# that the generator of the corpus had when it wrote both files.
CORPUS_SHA256 = "616329758827b7e85fd3d29f5690a489f180077d93b51b8f12426838fd0df65d"
HELD_OUT_SHA256 = "e40b8f032003c2a8f956f84e39c43b98f750b16d14c13fc122cbe19edc9b6e27"


def sha256(pairs):
    return hashlib.sha256("".join("\t".join(pair) + "\n" for pair in pairs).encode()).hexdigest()


def test_embedded_corpus_does_not_change():
    train = ready_made.train_pairs()
    held_out = [pair[:2] for pair in ready_made.held_out_pairs()]
    assert sha256([*train, *held_out]) == CORPUS_SHA256
    assert sha256(held_out) == HELD_OUT_SHA256
    assert (len(train), len(held_out)) == (28_800, 400)
    assert len({source for source, _ in [*train, *held_out]}) == 29_200


def test_baseline_of_the_held_out_pairs_does_not_change():
    found = [(pair.source, pair.word_for_word) for pair in ready_made.held_out_pairs()]
    assert sha256(found) == "2851966c0cb089e7a0a14d224f10866fb41cc9fe36e9e8be7dd505fe7f0960fc"
