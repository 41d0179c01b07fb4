"""The README and docs/: every block of shell runs, and what they name is there.

A block that cannot run has `<!-- not run: REASON -->` on the line above it. Its flags are compared
with the commands' all the same. The blocks of a document run in one folder, one after the other, as
a reader types them; `<!-- in a new folder -->` begins another.
"""

from __future__ import annotations

import ast
import bz2
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from architecture_pictures import PICTURES
from documents import (
    DOCUMENTS,
    ROOT,
    anchors_of,
    blocks_of,
    commands_of,
    inline_code_of,
    links_of,
    name_of,
    paragraphs_of,
    prose_of,
    tt_commands_of,
)
from toy import toy_sentences
from translation_jobs import translate

from tt.cli.main import load_command
from tt.cli.shared_options import COMMANDS
from tt.model.dataset.manifest import DatasetManifest
from tt.pipelines.preprocess.ready_made import held_out_pairs

SUPPORT = ROOT / "tests/support"
LONGEST = 600  # seconds that a block may take on a slow machine

BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]
SHELL = [block for block in BLOCKS if block.is_shell]
RUN = sorted({block.document for block in SHELL if not block.not_run})
MARKED = {(block.document, block.line) for block in SHELL if block.not_run or block.is_elsewhere}

# Flags that are added to a command of a document, so that it takes seconds: the last of equal
# flags wins, and any flag wins over a preset or a file. All else runs as it is written.
ADDED = {
    "preprocess": "--vocabulary-size 90",
    "train": "--encoder-layers 1 --decoder-layers 1 --d-model 16 --heads 2 --d-ff 16 "
    "--batch-tokens 512 --steps 3 --warmup-steps 2 --save-every 1 --validate-every 3 "
    "--score-every 0",
    "translate": "--max-decoding-length 8",
    "translate-batch": "--max-decoding-length 8",
}

# Flags of other programs that the documents name.
FOREIGN = {
    "--artifacts_dir",
    "--build-arg", "--checkpointing_interval", "--container_executable", "--direct_num_workers",
    "--environment_cache_millis",
    "--environment_config", "--environment_type", "--experiments", "--extra_package",
    "--flexrs_goal", "--flink_job_server_jar", "--flink_version", "--hypothesis-profile",
    "--job_endpoint", "--job_name",
    "--logdir", "--machine_type", "--max_bundle_size", "--max_num_workers", "--no_use_public_ips",
    "--number_of_worker_harness_threads", "--parallelism", "--require-hashes",
    "--requirements_file", "--runner", "--sdk_container_image", "--sdk_worker_parallelism",
    "--setup_file", "--staging_location", "--streaming", "--temp_location",
}  # fmt: skip


# The files that the blocks of a document read, by the names that it uses.


def write_text(path, lines):
    """Writes lines, compressed as the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    if path.suffix == ".zst":
        with pa.output_stream(str(path), compression="zstd") as file:
            file.write(content)
        return
    compress = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(compress(content))


def write_pair(folder, name, pairs, *, ending=""):
    for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        write_text(folder / f"{name}.{language}{ending}", lines)


def pairs_of(number, count=50):
    """Returns pairs that no other number has."""
    first = 50 * number
    return [(pair.source, pair.target) for pair in held_out_pairs()[first : first + count]]


def write_table(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def prepare_readme(folder, request):
    pairs = pairs_of(1)
    write_pair(folder, "train", pairs)
    write_pair(folder, "test", pairs_of(2, 5))
    write_text(folder / "pairs.tsv", ["\t".join(pair) for pair in [*pairs, pairs[0]]])
    write_table(folder / "articles.parquet", id=["a", "b"], body=["two one", "one. two."])


def prepare_preprocess(folder, request):
    pairs = pairs_of(1)
    write_pair(folder, "train", pairs, ending=".gz")
    write_pair(folder, "val", pairs_of(2, 5), ending=".gz")
    write_pair(folder, "test", pairs_of(3, 5))
    write_pair(folder, "a", pairs, ending=".gz")
    write_pair(folder, "news", pairs, ending=".zst")
    write_text(folder / "web.tsv.gz", ["\t".join(pair) for pair in pairs_of(4)])
    write_text(folder / "crawl-1.tsv.gz", [f"{a}\tx\t{b}" for a, b in [*pairs_of(5), ("a", "")]])
    lines = [json.dumps({"translation": {"en": a, "de": b}}) for a, b in pairs_of(6)]
    write_text(folder / "old.jsonl.bz2", lines)
    sources, targets = zip(*pairs_of(7), strict=True)
    write_table(folder / "parts/part-0.parquet", en=sources, de=targets)


def prepare_train(folder, request):
    shutil.copytree(request.getfixturevalue("dataset"), folder / "dataset")
    shutil.copytree(ROOT / "model/recipes", folder / "model/recipes")
    shutil.copytree(request.getfixturevalue("trained_toy").run, folder / "teacher")
    write_table(folder / "sources.parquet", source=[a for a, _ in toy_sentences(60, seed=5)])
    write_text(folder / "in-domain.tsv.gz", ["\t".join(pair) for pair in pairs_of(4)])


def prepare_python(folder, request):
    pairs = pairs_of(1)
    write_pair(folder, "train", pairs)
    write_table(folder / "articles.parquet", id=["a", "b"], body=["two one", "one. two."])


def prepare_formats(folder, request):
    shutil.copytree(request.getfixturevalue("dataset"), folder / "dataset")


def prepare_translate(folder, request):
    shutil.copytree(request.getfixturevalue("trained_toy").run, folder / "run")
    sources, targets = zip(*toy_sentences(6, seed=3), strict=True)
    write_table(folder / "input.parquet", text=sources)
    rows = [{"product": {"title": text}, "tags": [text], "stars": 5} for text in sources]
    write_text(folder / "reviews.jsonl", map(json.dumps, rows))
    write_text(folder / "products.csv.gz", ["title,price", *(f"{text},007" for text in sources)])
    write_text(folder / "mixed/a.tsv", ["body", *sources])
    write_table(folder / "mixed/b.parquet", body=sources)
    for name in ("a/one", "b/two"):
        table = {"title": sources, "body": sources, "human": targets}
        write_table(folder / f"data/{name}.parquet", **table)
    write_text(folder / "text.en", sources)
    for name in ("reference.de", "text.zh", "a.zh", "b.zh"):
        write_text(folder / name, targets)
    write_text(folder / "test.en.gz", sources)
    write_text(folder / "test.tsv", [f"{a}\t{b}" for a, b in zip(sources, targets, strict=True)])


def prepare_models(folder, request):
    from foreign_models import ENGLISH, SPANISH, argos, nllb, opus, pack_argos
    from marian_models import write_opus_npz

    opus(folder / "opus-mt-en-es")
    nllb(folder / "nllb")
    opus(folder / "unnamed", languages=("fra", "spa", "por"))
    write_opus_npz(folder)
    (folder / "pieces").mkdir()
    for side, name in (("source", "en"), ("target", "roa")):
        (folder / f"unnamed/{side}.spm").rename(folder / f"pieces/{name}.bin")
    argos(folder / "argos")
    pack_argos(folder / "argos", folder / "en_es.argosmodel")
    shutil.rmtree(folder / "argos")
    write_table(folder / "articles.parquet", id=["a", "b"], body=ENGLISH[:2])
    pairs = zip(ENGLISH[:60], SPANISH[:60], strict=True)
    write_text(folder / "in-domain.tsv", map("\t".join, pairs))
    write_table(folder / "mixed.parquet", text=ENGLISH[:3], lang=["es", "fra_Latn", "tlh"])
    write_text(folder / "text.en", ENGLISH[:5])
    write_text(folder / "reference.es", SPANISH[:5])


def prepare_look(folder, request):
    shutil.copytree(request.getfixturevalue("dataset"), folder / "dataset")
    run = request.getfixturevalue("trained_toy").run
    for name in ("run", "other-run"):
        shutil.copytree(run, folder / name)
    write_table(folder / "in.parquet", text=[source for source, _ in toy_sentences(6, seed=3)])
    translate(folder / "in.parquet", folder / "translated", text_columns=("text",))


def prepare_start(folder, request):
    prepare_readme(folder, request)
    (folder / "pairs.tsv").unlink()


def prepare_ted(folder, request):
    """What TFDS leaves when it has prepared a dataset."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    def split(number, count):
        english = [source for source, _ in pairs_of(number, count)]
        russian = [text.translate(_AS_CYRILLIC) for text in english]
        return tf.data.Dataset.from_tensor_slices({"en": english, "ru": russian})

    tfds.disable_progress_bar()
    tfds.dataset_builders.store_as_tfds_dataset(
        name="ted_hrlr_translate", config="ru_to_en", version="1.0.0", data_dir=folder / "tfds",
        features=tfds.features.Translation(languages=("ru", "en")),
        split_datasets={"train": split(1, 50), "validation": split(2, 5), "test": split(3, 5)},
    )  # fmt: skip


_AS_CYRILLIC = str.maketrans({chr(97 + i): chr(0x430 + i) for i in range(26)})
_AS_HAN = str.maketrans({chr(97 + i): chr(0x4E00 + i) for i in range(26)} | {" ": ""})


def prepare_news(folder, request):
    def pairs(number, count):
        found = [source.lower() for source, _ in pairs_of(number, count)]
        return [(text, text.translate(_AS_HAN)) for text in found]

    write_text(folder / "news.tsv.gz", ["\t".join(pair) for pair in pairs(1, 50)])
    english, chinese = zip(*pairs(2, 5), strict=True)
    write_text(folder / "test.en", english)
    write_text(folder / "test.zh", chinese)


def prepare_parquet(folder, request):
    sources, targets = zip(*pairs_of(1), strict=True)
    write_table(folder / "pairs.parquet", en=sources, de=targets)
    write_table(folder / "articles.parquet", id=["a", "b"], body=["two one", "one. two."])


def prepare_gpus(folder, request):
    shutil.copytree(request.getfixturevalue("dataset"), folder / "dataset")


def prepare_fine_tuning(folder, request):
    shutil.copytree(request.getfixturevalue("trained_toy").run, folder / "run")
    write_text(folder / "manuals.tsv", map("\t".join, toy_sentences(60, seed=11)))
    write_text(folder / "general.tsv.gz", map("\t".join, toy_sentences(200, seed=12)))
    write_pair(folder, "test", toy_sentences(5, seed=13))
    write_pair(folder, "general", toy_sentences(5, seed=14))


PREPARE = {
    "README.md": prepare_readme,
    "docs/formats.md": prepare_formats,
    "docs/models.md": prepare_models,
    "docs/look.md": prepare_look,
    "docs/preprocess.md": prepare_preprocess,
    "docs/train.md": prepare_train,
    "docs/start.md": prepare_start,
    "docs/translate.md": prepare_translate,
    "docs/tutorials/fine-tuning.md": prepare_fine_tuning,
    "docs/tutorials/gpus.md": prepare_gpus,
    "docs/tutorials/news.md": prepare_news,
    "docs/tutorials/parquet.md": prepare_parquet,
    "docs/tutorials/ted.md": prepare_ted,
}


# Running.


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """A folder for the PATH, in which `tt` runs in a child of a process that imported it."""
    folder = tmp_path_factory.mktemp("bin")
    socket = folder / "socket"
    added = {command: flags.split() for command, flags in ADDED.items()}
    server = subprocess.Popen(
        [sys.executable, SUPPORT / "tt_server.py", socket, json.dumps(added)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert server.stdout.readline() == b"ready\n"
        client = f'exec {sys.executable} -IS {SUPPORT / "tt_client.py"} {socket} "$@"'
        (folder / "tt").write_text(f"#!/bin/sh\n{client}\n")
        (folder / "tt").chmod(0o755)
        yield folder
    finally:
        server.stdin.close()  # which ends it
        server.wait(60)


def run_script(text, *, folder, commands):
    """Runs a block as a shell does into which it is pasted; returns what it printed."""
    path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"PATH": path, "XDG_CACHE_HOME": str(folder / ".cache")},
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = script.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        os.killpg(script.pid, signal.SIGKILL)
        raise
    return script.returncode, printed.decode()


@pytest.mark.parametrize("document", RUN)
def test_the_blocks_of_a_document_run_one_after_the_other(document, tmp_path, request, commands):
    folder = tmp_path / "first"
    PREPARE[document](folder, request)
    for block in SHELL:
        if block.document == document and not block.not_run:
            if block.is_elsewhere:
                folder = tmp_path / str(block.line)
                PREPARE[document](folder, request)
            code, printed = run_script(block.text, folder=folder, commands=commands)
            assert code == 0, f"{block} ends with {code}:\n{block.text}\n{printed}"
            assert "Traceback" not in printed, f"{block}:\n{printed}"


def test_the_tt_of_the_documents_hands_over_all_that_a_command_has(tmp_path, commands):
    """Pipes, exit codes, folders and added flags: a client that lost one would prove nothing."""
    (tmp_path / "there").mkdir()
    text = "cd there; tt evaluate - --reference <(echo one two) < <(echo one two); tt no-such-thing"
    code, printed = run_script(text, folder=tmp_path, commands=commands)
    assert "BLEU" in printed
    assert code == 2
    text = "echo 'spam: 1' > there/a.yaml; tt preprocess --config there/a.yaml | cat; echo not here"
    code, printed = run_script(text, folder=tmp_path, commands=commands)
    assert (code, "not here" in printed) == (2, False)
    assert "spam" in printed
    write_pair(tmp_path, "a", pairs_of(1))
    code, printed = run_script("tt preprocess a.en+a.de", folder=tmp_path, commands=commands)
    assert code == 0
    size = DatasetManifest.load(tmp_path / "dataset").source_vocabulary_size
    assert size == 96, "90, as it is added, rounded up to a multiple of 8"


# A vocabulary of 50 pairs, and a training of seconds.
SHORTENED = {
    'target_language="de")\nmanifest': 'target_language="de", vocabulary_size=96)\nmanifest',
    'output="other")': 'output="other", vocabulary_size=96)',
    'ModelLoader("run")': "ModelLoader(str(toy))",
    '{"steps": 20_000}': '{"steps": 2, "batch_tokens": 512, "score_every": 0}',
}


@pytest.mark.slow
def test_the_python_of_the_documents_runs(
    tmp_path, shallow_presets, monkeypatch, capsys, trained_toy
):
    """In one process, as in a notebook; what stands as a comment or as text is printed."""
    prepare_python(tmp_path, None)
    monkeypatch.chdir(tmp_path)
    names = {"toy": trained_toy.run}  # a model that is trained for more than seconds
    printed = []
    for block in (each for each in BLOCKS if each.document == "docs/python.md"):
        if block.language == "text":
            assert block.text.splitlines() == printed, str(block)
            continue
        text = block.text
        for written, run in SHORTENED.items():
            text = text.replace(written, run)
        exec(compile(text, str(block), "exec"), names)
        printed = capsys.readouterr().out.splitlines()
        for line in re.findall(r"print\(\w+\)  # (.*)", text):
            assert line in printed
    assert names["model"] == "run/model"
    assert names["manifest"].pairs_kept == 50
    assert names["summary"].rows == 2
    assert {each.status for each in names["found"].translations} <= {"ok", "incomplete"}
    assert len(names["found"].translations) == 2
    shortened = "".join(each.text for each in BLOCKS if each.document == "docs/python.md")
    assert all(written in shortened for written in SHORTENED)


# What the blocks say.


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_shell_that_runs_or_says_why_not(block):
    if block.is_shell:
        assert not block.not_run or len(block.not_run.split()) >= 3
        for path in re.findall(r"tests/\S+\.py", block.not_run):
            assert (ROOT / path).exists(), path
    else:
        assert not block.not_run
        assert block.language in ("text", "python"), "name the language of the block"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_command_stands_outside_of_blocks(document):
    for number, line in prose_of(document).items():
        assert not re.match(r"^(\s{4,}|\s*\$ )(tt|make|pip|python|\S+/bin/\S+) \S", line), number
        is_mark = line.startswith("<!--")
        assert not is_mark or (name_of(document), number + 1) in MARKED, f"{number} marks no block"


def flags_of_commands():
    """Returns the flags of each command of `tt`; "" is `tt` itself."""
    flags = {"": {"--version", "--help", "-h", "--install-completion", "--show-completion"}}
    for name in COMMANDS:
        parameters = [each for each in load_command(name).params if each.opts[0].startswith("-")]
        flags[name] = {flag for each in parameters for flag in each.opts + each.secondary_opts}
        flags[name] |= {"--help", "-h"}
    return flags


FLAGS = flags_of_commands()


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_a_block_names_commands_and_flags_that_there_are(block):
    for arguments in tt_commands_of(block.text):
        is_command = bool(arguments) and not arguments[0].startswith("-")
        command = arguments[0] if is_command else ""
        assert command in FLAGS, arguments
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        flags = {word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)}
        assert flags <= FLAGS[command], f"tt {command} has no {flags - FLAGS[command]}"
    for words in commands_of(block.text):
        if words[0] == "make":
            check_target(words[1])
        if script := next((word for word in words if word.startswith("tests/bench/")), None):
            check_script(script, words)
        if "pytest" in words:
            path = next(word for word in words if word.startswith("tests/"))
            name = words[words.index("-k") + 1] if "-k" in words else ""
            assert f"def test_{name}" in (ROOT / path).read_text("utf-8")


def test_the_commands_of_a_text_are_found():
    text = """tt a --b c \\
      --d  # tt e
    zcat f | tt g -- --h < i   # 'j
    tt k - --l <(tt m 'n  # o') > p && tt q
    cat > r <<'END'
    tt s
    END
    tt t
    """.replace("\n    ", "\n")
    assert tt_commands_of(text) == [
        ["a", "--b", "c", "--d"], ["g", "--", "--h", "<", "i"], ["k", "-", "--l"],
        ["m", "n  # o"], ["q"], ["t"],
    ]  # fmt: skip


def check_target(target):
    made = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def check_script(script, words):
    text = (ROOT / script).read_text("utf-8")
    for flag in (word for word in words if word.startswith("--")):
        assert f'"{flag}"' in text, f"{script} has no {flag}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_flags_and_files_in_the_text_are_there(document):
    known = FOREIGN.union(*FLAGS.values())
    for paragraph in paragraphs_of(document):
        for code in inline_code_of(paragraph):
            flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", code))
            if script := re.search(r"tests/\S+\.py", code):
                check_script(script[0], flags)
            else:
                assert flags <= known, f"no command has {flags - known}"
            for path in re.findall(r"^(?:cli|model|pipelines|tests|deploy|docs)/[\w./-]+$", code):
                assert (ROOT / path).exists() or path in ("model/config.json", "model/"), path
            if target := re.match(r"make ([a-z-]+)$", code):
                check_target(target[1])


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document):
    for link in links_of(document):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            there = (document.parent / path).resolve() if path else document
            assert there.is_relative_to(ROOT), link
            assert there.exists(), link
            assert not anchor or anchor in anchors_of(there), link


def test_the_readme_is_short_and_names_every_document():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 120
    links = links_of(ROOT / "README.md")
    for document in (ROOT / "docs").glob("*.md"):
        assert name_of(document) in {link.partition("#")[0] for link in links}
    start = {link.partition("#")[0] for link in links_of(ROOT / "docs/start.md")}
    for document in (ROOT / "docs/tutorials").glob("*.md"):
        assert f"tutorials/{document.name}" in start


# What the documents repeat of the code.


def definitions_of(path):
    """Returns the names that a module defines: functions, classes, their members, constants."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            members = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            found |= {f"{node.name}.{member.name}" for member in members}
    return found


ARCHITECTURE = [
    paragraph
    for paragraph in paragraphs_of(ROOT / "docs/architecture.md")
    if re.search(r"`[\w/]+\.py`", paragraph)
]


@pytest.mark.parametrize("paragraph", ARCHITECTURE, ids=lambda text: text[:40])
def test_the_names_of_the_architecture_are_in_the_files_beside_them(paragraph):
    """A paragraph names files, and what it says of them is defined in one of these."""
    codes = inline_code_of(paragraph)
    files = [ROOT / code for code in codes if re.fullmatch(r"[\w/]+\.py", code)]
    assert files
    defined = set().union(*map(definitions_of, files))
    names = [code for code in codes if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", code)]
    names = [name for name in names if name not in OUTSIDE_OF_FILES]
    assert set(names) <= defined, f"not in these files: {set(names) - defined}"


# Words of the architecture that are no names of ours: sections of files, packages.
OUTSIDE_OF_FILES = {
    "about",
    "cli",
    "pipelines",
    "model",
    "UserError",
    "dataset.json",
    "train.jsonl",
}


def test_the_architecture_names_files_of_every_room():
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    for package in ("model", "pipelines"):
        for room in (ROOT / package).iterdir():
            if (room / "__init__.py").exists():
                assert f"`{package}/{room.name}/" in text, room


def test_the_documents_say_what_is_chosen_by_size():
    from tt.model.training.choices import _TABLE, DatasetSize, choose_options
    from tt.model.transformer.config import PRESETS, count_layers

    text = (ROOT / "docs/train.md").read_text("utf-8")
    for row in _TABLE:
        wanted = f"| `{row.preset}` | {row.dropout} | {row.batch_tokens:,} | {row.warmup_steps:,} "
        assert wanted in text, wanted
    for name, fields in PRESETS.items():
        width, heads, inner, dropout = (
            fields[key] for key in ("d_model", "heads", "d_ff", "dropout")
        )
        layers = r" \| ".join(map(str, count_layers(fields)))
        wanted = rf"`{name}`[^|]*\| {layers} \| {width:,} \| {heads} \| {inner:,} \| {dropout} \|"
        assert re.search(wanted, text), wanted
    readme = (ROOT / "README.md").read_text("utf-8")
    for pairs, words in (
        (20_000, "20 thousand"),
        (200_000, "200 thousand"),
        (5_000_000, "5 million"),
    ):
        chosen = [
            choose_options(DatasetSize(pairs=pairs, tokens=pairs * tokens, longest=100), {})
            for tokens in (16, 30)  # a sentence
        ]
        [preset] = {each["preset"] for each in chosen}
        steps = " to ".join(dict.fromkeys(f"{each['steps']:,}" for each in chosen))
        assert f"| {words} | `{preset}`, {steps} updates |" in readme


def test_the_documents_list_every_status_and_reason():
    from tt.pipelines.preprocess import filters, held_out
    from tt.pipelines.texts.translating import STATUSES

    statuses = (ROOT / "docs/translate.md").read_text("utf-8")
    for status in STATUSES:
        assert f"`{status}`" in statuses
    listed = [line for line in (ROOT / "docs/preprocess.md").read_text("utf-8").split("\n")
              if line.startswith("| `")]  # fmt: skip
    for name, value in {**vars(filters), **vars(held_out)}.items():
        if name.isupper() and isinstance(value, str) and re.fullmatch(r"[a-z]+(_[a-z]+)+", value):
            assert any(f"`{value}`" in line for line in listed), value


def test_pictures_of_the_architecture_name_all_rooms_of_the_code():
    drawn = {name: draw().axes.texts for name, draw in PICTURES.items()}
    texts = {name: {each.get_text() for each in found} for name, found in drawn.items()}
    for package in ("pipelines", "model"):
        rooms = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert rooms <= texts["architecture.png"], package
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    for name in PICTURES:
        assert f"(images/{name})" in page
        assert (ROOT / "docs/images" / name).is_file()
    for text in texts["transformer.png"]:
        for file, kind in re.findall(r"(\w+\.py): (\w+)", text):
            code = (ROOT / "model/transformer" / file).read_text("utf-8")
            assert f"class {kind}(" in code, text
