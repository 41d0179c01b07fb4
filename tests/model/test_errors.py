"""Library messages inside the messages of `tt`."""

import pytest
import tensorflow as tf

from tt.model.errors import first_line, no_access, plain_reason


@pytest.mark.parametrize("message", ["", "\n", " \n\t\n"])
def test_errors_without_a_message_show_their_type(message):
    assert first_line(MemoryError(message)) == "MemoryError"
    assert plain_reason(ValueError(message)) == "ValueError"
    assert plain_reason(tf.errors.InternalError(None, None, message or "{{node a}}"))
    assert "(permission denied)" in str(no_access("run", reason=message))
