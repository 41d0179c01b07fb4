"""Human translations in a memory replace translations that a job would keep."""

from __future__ import annotations

import pyarrow as pa

from tt.pipelines.texts.options import TextOptions
from tt.pipelines.translate.table import TableOptions, find_corrected


class Corrections:
    """Human translations of "a dog" into French only."""

    def find_corrections(self, texts, *, target_language):
        return {text: "un chien" for text in texts if (text, target_language) == ("a dog", "fr")}


def test_corrections_belong_to_the_target_language_of_the_row():
    table = pa.table(
        {"text": ["a dog", "a dog", "a cat", "a dog", None], "lang": ["fr", "de", "fr", "", "fr"]}
    )
    options = TableOptions(
        fields=("text",), target_column="lang", texts=TextOptions(target_language="de")
    )
    found = find_corrected(table, options=options, memory=Corrections())
    assert found == [True, False, False, False, False]
    options = TableOptions(fields=("text",), texts=TextOptions(target_language="fr"))
    found = find_corrected(table, options=options, memory=Corrections())
    assert found == [True, True, False, True, False]
