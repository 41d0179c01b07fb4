"""Write the inputs of all cases: corpora and tables in every format, and files that are damaged.

Pairs come from the embedded corpus of the frozen program. `REAL` contains a few thousand lines of
`../shared/data`, if that folder is there.
"""

from __future__ import annotations

import bz2
import csv
import datetime
import gzip
import itertools
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

DATA = Path(__file__).parents[3].resolve() / "shared/data"
REAL = "real"
_REAL_LINES = 1500
_FILES = ("multi30k/train.de.gz", "multi30k/train.en.gz", "news_zh_en/train.en.gz",
          "news_zh_en/train.zh.gz", "messy/markup_ctrl_de_en.tsv.gz",
          "messy/web_en_de.labelled.tsv.gz", "messy/long_or_multiline_zh_en.jsonl.gz",
          "messy/crowd_dict_ur_en.tsv.gz", "newstest_en_de/newstest.tsv.gz")  # fmt: skip
_TIME = 1_700_000_000  # of all files, in seconds

# Pairs for the filters, the normalization and the placeholders of `tt preprocess`.
ODD_PAIRS = [
    ("Source", "Target"), ("", "Solo destino."), ("Only a source.", ""), ("Madrid", "Madrid"),
    ("It&amp;#39;s &lt;b&gt;here&lt;/b&gt; &amp; there", "Está &lt;b&gt;aquí&lt;/b&gt; &amp; allí"),
    ("The cafÃ© is closed.", "El cafÃ© está cerrado."), ("1 2 3 4 5 6", "1 2 3 4 5 6 7"),
    ("The dog eats.", "Собака ест хлеб каждый день дома."), ("A word.", "Una palabra " * 40 + "."),
    ("Write to me@example.com, ACME-17!", "¡Escribe a me@example.com, ACME-17!"),
    ("See https://example.com/a?b=1 {name}", "Mira https://example.com/a?b=1 {name}"),
    ("It costs $5.20 for 12,345 people.", "Cuesta $5.20 para 12,345 personas."),
    ("A ⟦3⟧ stray one.", "Una palabra."), ("Many\u200b  \u00a0 spaces .", "Muchos  espacios ."),
    ("ﬁne ﬂowers ½ m²", "ﬂores ﬁnas ½ m²"), ("x" * 6000, "largo"), ("Cafe\u0301", "Caf\u00e9 no"),
    ("Der Hund läuft durch den großen Park und bellt.", "El perro corre por el parque."),
]  # fmt: skip

# Texts for the decisions of `tt translate-batch`: status, sentences, spans, markup, capitals, and
# languages.
TEXTS = [
    "The teacher reads the book.", "The nurse doesn't see these doctors. We visit them on Mondays.",
    None, "", "   ", "12345", "SKU-4711", "N/A", "👍", "The teacher reads the book.",
    "They found %s last night https://example.com/a?b=1.", "Please write to me@example.com, {x}!",
    "I will bring sixty-seven oranges on April 10th.", "I will bring 67 oranges on April 10.",
    "<p><b>The woman</b> reads <a href=\"https://example.com/x\">her poems</a> every day.</p>",
    "# The red house\n\n- The teacher reads **the book**.\n- `code` & [a phone](http://a.example)\n",
    "| The dog | The cat |\n|---|---|\n| It eats. | It sleeps. |", "THE WOMAN READS THE BOOK.",
    "The Teacher Reads The Old Book", "Der Hund läuft durch den großen Park und bellt laut.",
    "Caf&eacute; &amp; tea &lt;b&gt;here&lt;/b&gt;.", "The book\nand tea.\n\nThey can't buy it.",
    "Does Tomas wash the window? " * 12, "The door ★★★☆☆ costs $5.20 or 50 %.", "日本語のテキスト",
    "Our son waited for ACME-17 and ACME-18 and ACME-19 last Saturday; he bought 3 apples.",
    "Elena will help her mother on Saturday", "the " * 90, "She sells ½ of -5 oranges at 12:30.",
    "<img alt=\"The red house\" src=\"a.png\"><script>x = 1</script> The cat sleeps.",
]  # fmt: skip


def write_inputs(folder: Path, embedded: Path) -> None:
    """Write all inputs, given the embedded corpus."""
    folder.mkdir(parents=True)
    lines = gzip.decompress(embedded.read_bytes()).decode("utf-8").splitlines()
    pairs = [tuple(line.split("\t")[:2]) for line in lines[:28_800:29]]
    _write_corpora(folder, pairs)
    _write_tables(folder)
    _write_lakes(folder)
    _write_options(folder, pairs)
    if DATA.is_dir():
        _copy_real(folder / REAL)
    for path in folder.rglob("*"):
        os.utime(path, (_TIME, _TIME), follow_symlinks=False)


def _write_corpora(folder: Path, pairs: list[tuple[str, str]]) -> None:
    mixed = [
        *ODD_PAIRS,
        *pairs[:600],
        *pairs[:20],
        *[(pairs[i][0], pairs[i + 1][1]) for i in range(9)],
    ]
    tsv = "".join(f"{source}\t{target}\n" for source, target in mixed)
    (folder / "pairs.tsv").write_text(f"{tsv}one cell only\n", "utf-8")
    with (folder / "pairs.tsv").open("ab") as file:
        file.write(b"bad \xff utf-8\tmal\n")
    table = pa.table(
        {"id": range(600), "en": [a for a, _ in pairs[:600]], "es": [b for _, b in pairs[:600]]}
    )
    pacsv.write_csv(table, folder / "pairs.csv")
    bars = pacsv.WriteOptions(delimiter="|")
    pacsv.write_csv(table, folder / "pairs.dat", bars)
    (folder / "parts").mkdir()
    pq.write_table(table.slice(0, 300), folder / "parts/part-0.parquet", row_group_size=100)
    pq.write_table(table.slice(300), folder / "parts/part-1.parquet")
    feather.write_feather(table, folder / "pairs.feather")
    with pa.ipc.new_stream(folder / "pairs.arrow", table.schema) as writer:
        writer.write_table(table.slice(0, 50))
    objects = [{"translation": {"en": a, "es": b}, "n": i} for i, (a, b) in enumerate(pairs[:200])]
    rows = [*map(json.dumps, objects), "{broken", '{"translation": {"en": "No target."}}']
    (folder / "pairs.jsonl.bz2").write_bytes(bz2.compress("\n".join(rows).encode()))
    for side, name in enumerate(("en", "es")):
        text = "".join(f"{pair[side]}\n" for pair in pairs[600:900])
        (folder / f"lines.{name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        (folder / f"latin.{name}").write_bytes(text.encode("latin-1", "replace"))
        held_out = "".join(f"{pair[side]}\n" for pair in [*pairs[900:], *pairs[:5]])
        (folder / f"held.{name}").write_text(held_out, "utf-8")
    (folder / "short.es").write_text("Una línea.\n", "utf-8")
    (folder / "exclude.txt").write_text("".join(f"{a}\n" for a, _ in pairs[5:25]), "utf-8")
    web = "".join(f"{i}\t{a}\t{b}\n" for i, (a, b) in enumerate(pairs[300:700]))
    with pa.output_stream(folder / "web.tsv.zst", compression="zstd") as file:
        file.write(web.encode())


def _write_tables(folder: Path) -> None:
    count = len(TEXTS)
    day = datetime.date(2024, 1, 1)
    table = pa.table({
        "id": pa.array(range(count), pa.int32()),
        "text": TEXTS,
        "lang": ["de" if text and text.startswith("Der ") else "en" for text in TEXTS],
        "price": pa.array([None if i % 7 == 3 else i / 4 for i in range(count)], pa.float64()),
        "day": [day + datetime.timedelta(i) for i in range(count)],
        "product": [{"title": text, "stars": i} for i, text in enumerate(TEXTS)],
        "tags": [[text, "red apples"] if i % 2 else None for i, text in enumerate(TEXTS)],
        "blob": pa.array([bytes([i]) for i in range(count)], pa.large_binary()),
        "kind": pa.array(["a", "b", "c"] * (count // 3)).dictionary_encode(),
    })  # fmt: skip
    pq.write_table(table, folder / "texts.parquet", row_group_size=11)
    plain = table.select(["id", "text", "lang", "price"])
    feather.write_feather(table.drop_columns(["blob"]), folder / "texts.feather")
    with pa.ipc.new_stream(folder / "texts.arrow", plain.schema) as writer:
        writer.write_table(plain)
    rows = plain.to_pylist()
    for name, open_file in (("texts.csv", open), ("texts.csv.gz", gzip.open)):
        with open_file(folder / name, "wt", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, plain.column_names)
            writer.writeheader()
            writer.writerows(rows)
    flat = [
        {k: str(v if v is not None else "").replace("\n", " ") for k, v in row.items()}
        for row in rows
    ]
    tsv = "\n".join("\t".join(row.values()) for row in flat)
    (folder / "texts.tsv").write_text(f"id\ttext\tlang\tprice\n{tsv}\n", "utf-8")
    bars = f"id\ttext\tlang\tprice\n{tsv}\n".replace("\t", "|")
    (folder / "texts.dat").write_bytes(bars.encode("latin-1", "replace"))
    objects = [{**row, "more": {"x": [1, None]}} if row["id"] % 3 else row for row in rows]
    lines = "".join(f"{json.dumps(row, ensure_ascii=row['id'] % 2 == 0)}\n" for row in objects)
    with pa.output_stream(folder / "texts.jsonl.zst", compression="zstd") as file:
        file.write((lines + '{"id": 99, "text": "lone \\ud800 surrogate"}\n').encode())
    (folder / "texts.txt").write_text("".join(f"{row['text']}\r\n" for row in flat), "utf-8")
    for day_number in (1, 2, 3):
        part = table.slice(day_number * 6, 6).select(["id", "text", "price"])
        pq.write_table(part, folder / f"day{day_number}.parquet")
    bad = folder / "bad"
    bad.mkdir()
    (bad / "cut.parquet").write_bytes((folder / "day1.parquet").read_bytes()[:-40])
    (bad / "ragged.csv").write_text("id,text\n1,The dog eats.\n2,The cat,sleeps.\n", "utf-8")
    (bad / "broken.jsonl").write_text('{"text": "The dog eats."}\n{"text": \n', "utf-8")
    (bad / "other.csv").write_text("id,body\n1,The dog eats.\n", "utf-8")
    pq.write_table(table.slice(0, 2).select(["id", "text"]), bad / "good.parquet")
    (bad / "notes.docx").write_bytes(b"not a table")
    for language, year in itertools.product(("en", "de"), (2023, 2024)):
        part = folder / f"shop/lang={language}/year={year}"
        part.mkdir(parents=True)
        pq.write_table(table.slice(year - 2020, 3).select(["id", "text"]), part / "part.parquet")


def _write_lakes(folder: Path) -> None:
    table = pa.table({"id": range(6), "text": TEXTS[:2] * 3, "day": ["a", "a", "b", "b", "c", "c"]})
    write_deltalake(folder / "delta", table, partition_by=["day"])
    DeltaTable(folder / "delta").delete("day = 'b'")
    lake = folder / "lake"
    lake.mkdir()
    settings = {"uri": f"sqlite:///{lake}/catalog.sqlite", "warehouse": f"file://{lake}"}
    catalog = SqlCatalog("lake", **settings)
    catalog.create_namespace("shop")
    created = catalog.create_table("shop.products", schema=table.schema)
    created.append(table)
    catalog.engine.dispose()
    yaml = f"catalog:\n  lake:\n    type: sql\n    uri: {settings['uri']}\n"
    (folder / "pyiceberg.yaml").write_text(f"{yaml}    warehouse: {settings['warehouse']}\n")


def _write_options(folder: Path, pairs: list[tuple[str, str]]) -> None:
    terms = "teacher\tmaestro\nred apples\tmanzanas rojas\tany-case\nphone\tmóvil\n"
    (folder / "terms.tsv").write_text(terms, "utf-8")
    corrections = "source\ttarget\nThe teacher reads the book.\tEl docente lee el libro.\n"
    (folder / "corrections.tsv").write_text(corrections, "utf-8")
    scorer = "import json, sys\nfor line in sys.stdin:\n    row = json.loads(line)\n"
    scorer += "    print(json.dumps({'score': len(row['translation'])}), flush=True)\n"
    (folder / "scorer.py").write_text(scorer, "utf-8")
    for name, shift in (("reference", 0), ("system", 1), ("other", 2)):
        words = [pair[1].split() for pair in pairs[:60]]
        cut = [row[: len(row) - (i % 3 < shift)] for i, row in enumerate(words)]
        (folder / f"{name}.es").write_text("".join(f"{' '.join(row)}\n" for row in cut), "utf-8")
    (folder / "source.en").write_text("".join(f"{pair[0]}\n" for pair in pairs[:60]), "utf-8")
    columns = {
        name: (folder / f"{name}.es").read_text("utf-8").splitlines()
        for name in ("reference", "system", "other")
    }
    sources = [pair[0] for pair in pairs[:60]]
    pq.write_table(pa.table({"source": sources, **columns}), folder / "systems.parquet")
    sections = {
        "preprocess": {
            "corpora": ["../in/pairs.csv:en:es"],
            "vocabulary_size": 300,
            "max_tokens": 20,
        },
        "train": {"preset": "tiny", "steps": 4},
        "translate-batch": {
            "input": ["../in/day1.parquet"],
            "model": "../in/ct2",
            "protect": False,
        },
        "translate": {"model": "../in/ct2", "beam_size": 2},
        "show": {"examples": 1},
        "evaluate": {"reference": ["../in/reference.es"], "lowercase": True},
    }
    (folder / "options.yaml").write_text(json.dumps(sections), "utf-8")  # JSON is YAML
    (folder / "wrong.yaml").write_text("preprocess:\n  max_token: 20\n", "utf-8")


def _copy_real(folder: Path) -> None:
    folder.mkdir()
    for name in _FILES:
        with gzip.open(DATA / name) as file:
            lines = b"".join(itertools.islice(file, _REAL_LINES))
        (folder / Path(name).stem).write_bytes(lines)
    (folder / "tfds").symlink_to(DATA / "tfds")
