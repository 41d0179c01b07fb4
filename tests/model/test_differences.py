"""The comparison of saved options with new options."""

from tt.model.json_files import describe_differences

SAVED = {
    "model": {"width": 512, "fingerprint": "aa"},
    "filters": {"min_letters": 0.25, "reject_identical": True},
    "languages": ["de", "en"],
    "limit": None,
    "steps": 10,
}


def test_values_of_all_types_are_formatted_for_users():
    asked = {
        "model": {"width": 256, "fingerprint": "aa"},
        "filters": {"min_letters": 0.25, "reject_identical": False},
        "languages": [],
        "limit": 7,
        "seed": "",
        "steps": 10,
    }
    assert describe_differences(SAVED, asked) == [
        "`width` was 512 and is now 256",
        "`reject_identical` was on and is now off",
        "`languages` was de, en and is now empty",
        "`limit` was not set and is now 7",
        "`seed` was not set and is now empty",
    ]


def test_ignored_options_and_groups_may_differ():
    asked = {**SAVED, "model": {"width": 8, "fingerprint": "bb"}, "steps": 20, "limit": 7}
    assert describe_differences(SAVED, asked, ignored=["steps", "limit", "model.fingerprint"]) == [
        "`width` was 512 and is now 8"
    ]
    assert describe_differences(SAVED, asked, ignored=["steps", "limit", "model"]) == []
