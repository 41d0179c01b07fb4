"""Find the steps of a pipeline that a runner cannot fuse."""

from __future__ import annotations

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

GROUPING = (
    common_urns.primitives.GROUP_BY_KEY.urn, common_urns.composites.RESHUFFLE.urn,
    common_urns.primitives.FLATTEN.urn, common_urns.composites.COMBINE_PER_KEY.urn,
    common_urns.composites.COMBINE_GLOBALLY.urn,
)  # fmt: skip


def find_fusion_breaks(proto):
    """Return the steps that a runner cannot fuse with the steps before them."""
    found = []
    for transform in proto.components.transforms.values():
        if transform.spec.urn in GROUPING:
            found.append(transform.unique_name)
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            if payload.side_inputs or payload.state_specs or payload.timer_family_specs:
                found.append(transform.unique_name)
            if payload.requires_stable_input:
                found.append(transform.unique_name)
    return found
