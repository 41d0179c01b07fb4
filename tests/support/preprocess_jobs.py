"""Preprocess jobs that say what they did."""

from model.errors import UserError
from pipelines.pairs.filters import Filters
from pipelines.preprocess import encode_steps, plan
from pipelines.preprocess.options import PreprocessOptions
from pipelines.preprocess.request import PreprocessRequest

UNIT_PAIRS = 100


def make_dataset(corpora, output, beam):
    """Makes a dataset in a process of its own; returns how many units it encoded, or the error."""
    encoded = []
    encode_unit = encode_steps.encode_unit

    def count_encoded(unit, *args, **kwargs):
        encoded.append(unit.label)
        return encode_unit(unit, *args, **kwargs)

    encode_steps.encode_unit = count_encoded
    plan.MAX_UNIT_PAIRS = UNIT_PAIRS
    report = {"error": ""}
    try:
        request = PreprocessRequest(
            corpora=tuple(corpora),
            options=PreprocessOptions(
                output=str(output),
                shards=8,
                vocabulary_size=120,
                filters=Filters(min_letters=0, max_length_ratio=0),
            ),
            beam_arguments=tuple(beam),
        )
        request.plan().run()
    except UserError as error:
        report["error"] = f"{type(error).__name__}: {error}"
    return report | {"encoded": len(encoded)}
