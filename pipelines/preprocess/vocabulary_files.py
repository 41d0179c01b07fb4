"""The vocabularies in a dataset folder, and the digests that show whether they are whole."""

from __future__ import annotations

from collections.abc import Mapping

from model.dataset.manifest import digest_file
from model.errors import UnfinishedError
from model.text.vocabulary import VocabularyPair, load_vocabularies
from pipelines.preprocess.plan import DatasetPlan
from pipelines.storage import files
from pipelines.storage.paths import join


def write_vocabulary(plan: DatasetPlan, name: str, content: bytes) -> str:
    """Write a vocabulary, and then its digest to the work folder; return the digest."""
    with plan.work.write_whole(join(plan.options.output, name)) as file:
        file.write(content)
    digest = digest_file(content)
    plan.work.write_text(plan.work.digest(name), digest)
    return digest


def find_vocabularies(plan: DatasetPlan) -> dict[str, str] | None:
    """Return the digests of the vocabularies by file name; None unless all files are whole."""
    digests = {}
    for name in plan.options.model_files:
        path, noted = join(plan.options.output, name), plan.work.digest(name)
        if not (files.is_there(path) and files.is_there(noted)):
            return None
        digests[name] = digest_file(files.read_bytes(path))
        if files.read_bytes(noted) != digests[name].encode():
            return None
    return digests


def delete_vocabularies(plan: DatasetPlan) -> None:
    """Delete vocabularies that are not whole, so that nobody takes them for finished ones."""
    paths = [join(plan.options.output, name) for name in plan.options.model_files]
    files.delete([path for path in paths if files.is_there(path)])


def load_planned(folder: str, digests: Mapping[str, str]) -> VocabularyPair:
    """Load the vocabularies of a dataset folder if they have these digests, by file name.

    Raises:
      UnfinishedError: A file has changed.
    """

    def read(path: str) -> bytes:
        content = files.read_bytes(path)
        expected = digests.get(path.rpartition("/")[2])
        if expected not in (None, digest_file(content)):
            raise UnfinishedError(
                f"{path} has changed since the job began. Run the same command again, which "
                "makes the file again"
            )
        return content

    return load_vocabularies(folder, read=read)
