"""Characters that look like tokens or tags get tokens, so a model can learn them."""

import pytest
from command_line import TEXTS, run, write_corpus

from tt.model.text.vocabulary import load_vocabularies

LITERALS = ["<|endoftext|>", "a < b > c", "[INST]", "<|im_start|>"]


@pytest.mark.parametrize("options", [[], ["--separate-vocabularies"]])
def test_literal_tokens_of_a_corpus_are_known(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    for side in ("a.en", "a.xx"):
        lines = (tmp_path / side).read_text().splitlines()
        added = [f"{line} {LITERALS[i % len(LITERALS)]}" for i, line in enumerate(lines)]
        (tmp_path / side).write_text("\n".join(added) + "\n")
    own = ("--no-protect", "--output", "dataset")  # protected text would become placeholders
    assert run("preprocess", *TEXTS[:4], *options, *own) == 0
    vocabularies = load_vocabularies(tmp_path / "dataset")
    for vocabulary in (vocabularies.source, vocabularies.target):
        assert [vocabulary.find_unknown(literal) for literal in LITERALS] == [[]] * len(LITERALS)
