"""The one exception that the command line turns into a message and exit code 2."""

from __future__ import annotations


class UserError(Exception):
    """A mistake that the user can mend: a wrong path, option or input.

    The message is one line that says what is wrong, what was received and what to do next.
    Anything that is not the user's to mend is raised as another exception, with its traceback.
    """


class BadFileError(UserError):
    """What a file holds cannot be read, or is not what is asked for; that it is there is sure."""


class NotFiniteError(UserError):
    """A model's numbers overflow or are none: no translation has a probability."""


class UnfinishedError(UserError):
    """Nothing is wrong with input and options: what is finished is kept, to be gone on from."""


class DiskFullError(UnfinishedError):
    """There is no room to write to."""


class NoAccessError(UnfinishedError):
    """A file or folder may not be read or written by this user."""


class ServiceError(UnfinishedError):
    """A service over the network does not answer, or refuses."""
