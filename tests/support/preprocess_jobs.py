"""Preprocess jobs that report their work."""

from tt.model.errors import UserError
from tt.pipelines.preprocess import encode_steps, sizes
from tt.pipelines.preprocess.filters import Filters
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.request import PreprocessRequest

UNIT_PAIRS = 100


def make_dataset(corpora, output, beam):
    """Create a dataset in a child process; return the number of encoded units, and the error."""
    encoded = []
    encode_unit = encode_steps.encode_unit

    def count_encoded(unit, *args, **kwargs):
        encoded.append(unit.label)
        return encode_unit(unit, *args, **kwargs)

    encode_steps.encode_unit = count_encoded
    sizes.MAX_UNIT_PAIRS = UNIT_PAIRS
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
