"""Errors about Beam's flags name the flag, but contain no secrets."""

from __future__ import annotations

import pytest

from tt.model.errors import UserError
from tt.pipelines.runners.beam_options import check_flags, describe_arguments, parse_arguments
from tt.pipelines.runners.runner import make_pipeline

SECRETS = ("--dataflow_kms_key=hush", "--sdk_harness_token", "hush")


@pytest.mark.parametrize(
    ("take", "wrong"),
    [(parse_arguments, "--direct_num_workers=many"), (make_pipeline, "--runner=Flnk")],
)
def test_flags_that_beam_refuses_are_shown_without_secrets(take, wrong):
    with pytest.raises(UserError) as refused:
        take([*SECRETS, wrong])
    assert "hush" not in str(refused.value)
    assert str(refused.value).startswith(
        f"Beam does not accept the options '--dataflow_kms_key=*** --sdk_harness_token=*** {wrong}"
    )


def test_a_flag_with_dashes_is_named_without_its_secret():
    for given in (["--s3-secret-access-key=hush"], ["--s3-secret-access-key", "hush"]):
        with pytest.raises(UserError) as refused:
            check_flags(given)
        assert str(refused.value).startswith("Beam has no option --s3-secret-access-key")
        assert "hush" not in str(refused.value)
    with pytest.raises(UserError, match=r"no option --direct-num-workers=2\. Put"):
        check_flags(["--direct-num-workers=2"])


def test_beams_help_is_refused(capsys):
    with pytest.raises(UserError) as caught:
        parse_arguments(["--help"])
    assert str(caught.value) == ("Beam does not accept the options '--help': remove --help")
    assert capsys.readouterr().out == ""


def test_secrets_are_not_shown():
    beam = (
        "--s3_access_key_id=A", "--s3_secret_access_key", "B", "--s3_session_token=C",
        "--azure_connection_string=D", "--region", "r",
    )  # fmt: skip
    assert describe_arguments(beam) == (
        "--s3_access_key_id=*** --s3_secret_access_key=*** --s3_session_token=*** "
        "--azure_connection_string=*** --region r"
    )
    assert describe_arguments([]) == "none"
