"""What object stores are asked for, to the request."""

from __future__ import annotations

from pipelines.storage import files
from pipelines.storage.paths import file_systems


def test_a_folder_is_deleted_in_few_requests(object_store):
    folder = f"{object_store.bucket}/data/_work"
    for number in range(48):
        with file_systems().create(f"{folder}/{number % 3}/{number}") as file:
            file.write(b"x")
    assert object_store.counts() == {"upload": 2 * 48}, "an upload begins, and ends"
    assert len(object_store.objects(folder)) == 48
    object_store.forget()
    files.delete_folder(folder)
    assert not object_store.objects(folder)
    assert object_store.counts() == {"list": 3, "bucket": 3, "batch": 1}
