"""Stream requests are checked before a broker is contacted."""

import pytest
from fakes import Loader, Reverser

from tt.model.errors import UserError
from tt.model.transformer.search_options import Decoding
from tt.pipelines.streams.job import StreamRequest
from tt.pipelines.streams.options import StreamOptions

MODEL = Loader(Reverser, "reverser")
OPTIONS = StreamOptions(input="kafka://a:1/in", output="kafka://a:1/out", group="g")


@pytest.mark.parametrize(
    ("request_fields", "said"),
    [
        ({"decoding": Decoding(beam_size=4, n_best=2)}, "`n_best` needs `fields`"),
        ({"beam": ("--direct_num_workers=2",)}, "Remove --direct_num_workers=2"),
        ({"beam": ("--runner=SparkRunner",)}, "runs only on Dataflow or on this machine"),
        ({"beam": ("--runner=FlinkRunner",)}, "runs only on Dataflow or on this machine"),
    ],
)
def test_unsupported_requests_are_refused_before_a_broker_is_contacted(request_fields, said):
    with pytest.raises(UserError, match=said):
        StreamRequest(**{"options": OPTIONS, "model": MODEL, **request_fields}).plan()
