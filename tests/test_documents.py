"""The commands, options, files and links in the README and docs/ exist.

Each test reads all documents and lists every violation. `test_docs.py` runs the blocks.
"""

from __future__ import annotations

import ast
import re
import subprocess

import typer
import yaml
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
from reference_pages import command_page, spans_page

from tt.cli.main import load_command
from tt.cli.shared_options import COMMANDS

BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]
SHELL = [block for block in BLOCKS if block.is_shell]
PAGES = [document for document in DOCUMENTS if document.is_relative_to(ROOT / "docs")]
GENERATED = ROOT / "docs/reference/commands"
ARCHITECTURE = ROOT / "docs/internals/architecture.md"

# Options of other programs that the documents mention.
FOREIGN = {
    "--artifacts_dir", "--build-arg", "--checkpointing_interval", "--container_executable",
    "--direct_num_workers", "--directory", "--editable", "--environment_cache_millis",
    "--environment_config", "--environment_type", "--experiments", "--extra_package",
    "--flexrs_goal", "--flink_job_server_jar", "--flink_version", "--hypothesis-profile",
    "--job_endpoint", "--job_name",
    "--logdir", "--machine_type", "--max_bundle_size", "--max_num_workers", "--no_use_public_ips",
    "--number_of_worker_harness_threads", "--paired-ar", "--paired-bs", "--parallelism",
    "--require-hashes",
    "--requirements_file", "--runner", "--sdk_container_image",
    "--sdk_worker_parallelism", "--setup_file", "--soft-delete-duration", "--staging_location",
    "--streaming", "--temp_location",
}  # fmt: skip


def flags_of_commands():
    """Return the options of each command of `tt`; "" is `tt` itself."""
    flags = {"": {"--version", "--help", "-h", "--install-completion", "--show-completion"}}
    for name in COMMANDS:
        command = load_command(name)
        parameters = command.get_params(typer.Context(command))
        spellings = [flag for each in parameters for flag in each.opts + each.secondary_opts]
        flags[name] = {flag for flag in spellings if flag.startswith("-")}
    return flags


def makefile_targets():
    """Return the targets of the Makefile that a text may name."""
    text = (ROOT / "Makefile").read_text("utf-8")
    lines = re.findall(r"^([a-z][a-z -]*):", text, re.M)
    return {target for line in lines for target in line.split()}


def test_blocks_name_their_language_and_run_or_have_a_reason():
    wrong = []
    for block in BLOCKS:
        if not block.is_shell and block.language not in ("text", "python", "yaml", "json"):
            wrong.append(f"{block}: name the language")
        if block.not_run and not (block.is_shell and len(block.not_run.split()) >= 3):
            wrong.append(f"{block}: only shell blocks may have a reason, of at least 3 words")
        for path in re.findall(r"tests/\S+\.py", block.not_run):
            if not (ROOT / path).exists():
                wrong.append(f"{block}: {path} does not exist")
    assert not wrong, "\n".join(wrong)


def test_commands_and_marks_belong_to_blocks():
    marked = {(each.document, each.line) for each in SHELL if each.not_run or each.is_elsewhere}
    wrong = []
    for document in DOCUMENTS:
        for number, line in prose_of(document).items():
            if re.match(r"^(\s{4,}|\s*\$ )(tt|make|pip|python|\S+/bin/\S+) \S", line):
                wrong.append(f"{name_of(document)}:{number}: put the command into a block")
            is_mark = line.startswith("<!--") and "Generated" not in line
            if is_mark and (name_of(document), number + 1) not in marked:
                wrong.append(f"{name_of(document)}:{number} marks no block")
    assert not wrong, "\n".join(wrong)


def test_the_commands_and_options_of_blocks_exist():
    flags, targets = flags_of_commands(), makefile_targets()
    wrong = []
    for block in SHELL:
        for arguments in tt_commands_of(block.text):
            is_command = bool(arguments) and not arguments[0].startswith("-")
            command = arguments[0] if is_command else ""
            own = arguments[: arguments.index("--")] if "--" in arguments else arguments
            given = {word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)}
            for flag in given - flags.get(command, set()):
                wrong.append(f"{block}: tt {command} has no {flag}")
            if command not in flags:
                wrong.append(f"{block}: tt has no command {command}")
        for words in commands_of(block.text):
            if words[0] == "make" and words[1] not in targets:
                wrong.append(f"{block}: make has no target {words[1]}")
            for path in (word for word in words if word.startswith("tests/")):
                wrong += [f"{block}: {each}" for each in errors_of_script(path, words)]
    assert not wrong, "\n".join(wrong)


def errors_of_script(path, words):
    """Return what is wrong with a call of a script or folder of tests: its path and its options."""
    if not (ROOT / path).exists():
        return [f"{path} does not exist"]
    text = (ROOT / path).read_text("utf-8") if path.startswith("tests/bench/") else None
    flags = [word for word in words if word.startswith("--")]
    return [f"{path} has no {flag}" for flag in flags if text and f'"{flag}"' not in text]


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


def test_the_options_and_files_in_texts_exist():
    known, targets = FOREIGN.union(*flags_of_commands().values()), makefile_targets()
    wrong = []
    for document in DOCUMENTS:
        for code in (code for text in paragraphs_of(document) for code in inline_code_of(text)):
            found = []
            flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", code))
            if script := re.search(r"tests/\S+\.py", code):
                found += errors_of_script(script[0], flags)
            else:
                found += [f"no command has {flag}" for flag in flags - known]
            for path in re.findall(r"^(?:cli|model|pipelines|tests|deploy|docs)/[\w./-]+$", code):
                if not (ROOT / path).exists() and path not in ("model/config.json", "model/"):
                    found.append(f"{path} does not exist")
            target = re.match(r"make ([a-z-]+)$", code)
            if target and target[1] not in targets:
                found.append(f"make has no target {target[1]}")
            wrong += [f"{name_of(document)}: {each}" for each in found]
    assert not wrong, "\n".join(wrong)


def test_the_targets_that_documents_may_name_exist():
    ended = subprocess.run(
        ["make", "-n", *sorted(makefile_targets())], cwd=ROOT, capture_output=True, text=True,
        check=False, env={"PATH": "/usr/bin:/bin", "MODEL": "run", "TEXT": "a"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def test_the_targets_of_links_exist():
    wrong = []
    for document in DOCUMENTS:
        root = ROOT / "docs" if document.is_relative_to(ROOT / "docs") else ROOT
        for link in links_of(document):
            if link.startswith("https://"):
                continue
            path, _, anchor = link.partition("#")
            there = (document.parent / path).resolve() if path else document
            is_symbol = anchor.startswith("tt.")  # mkdocstrings makes these anchors
            if not there.is_relative_to(root) or not there.exists():
                wrong.append(f"{name_of(document)}: {link} does not exist below {root}")
            elif anchor and not is_symbol and anchor not in anchors_of(there):
                wrong.append(f"{name_of(document)}: {link} has no such heading")
    assert not wrong, "\n".join(wrong)


def test_the_documents_that_the_code_mentions_exist():
    wrong = []
    folders = ("cli", "model", "pipelines", "deploy", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in (ROOT / "Makefile", *files):
        if path.suffix not in (".pyc", ".gz", ".jar"):
            for name in re.findall(r"\bdocs/[a-z/-]+\.md\b", path.read_text("utf-8", "ignore")):
                if not (ROOT / name).exists():
                    wrong.append(f"{path.relative_to(ROOT)} mentions {name}")
    assert not wrong, "\n".join(wrong)


def test_documents_are_short():
    wrong = []
    for document in (page for page in DOCUMENTS if not page.is_relative_to(GENERATED)):
        name = name_of(document)
        lines = document.read_text("utf-8").splitlines()
        most = {"README.md": 130, "CONTRIBUTING.md": 80}.get(name, 200)
        if len(lines) > most:
            wrong.append(f"{name} has {len(lines)} lines, more than {most}")
        for number, line in enumerate(lines, 1):
            if len(line) > 120 and not line.startswith("|") and "](https://" not in line:
                wrong.append(f"{name}:{number} has {len(line)} characters")
    assert not wrong, "\n".join(wrong)


def pages_in(navigation):
    """Yield the paths of the pages in a part of the navigation of MkDocs."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for part in navigation if isinstance(navigation, list) else navigation.values():
            yield from pages_in(part)


def test_the_navigation_and_the_first_page_list_every_page():
    configuration = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES}
    assert sorted(pages_in(configuration["nav"])) == sorted(pages)
    links = {link.partition("#")[0] for link in links_of(ROOT / "docs/index.md")}
    commands = {str(page.relative_to(ROOT / "docs")) for page in GENERATED.iterdir()}
    assert pages - links - commands == {"index.md"}


def test_the_page_of_each_command_is_generated_from_its_options():
    assert {page.stem for page in GENERATED.iterdir()} == set(COMMANDS)
    old = [
        name
        for name in COMMANDS
        if (GENERATED / f"{name}.md").read_text("utf-8") != command_page(name)
    ]
    assert not old, f"run `make docs`, and commit docs/reference/commands: {old}"


def test_the_page_of_spans_is_generated_from_the_table():
    page = ROOT / "docs/reference/spans.md"
    assert page.read_text("utf-8") == spans_page(), f"run `make docs`, and commit {page.name}"


# Facts in the documents that the code defines.

# Words in backquotes on the architecture page that are defined in other files, or are file names.
OUTSIDE_OF_FILES = {"UserError", "train.jsonl"}


def definitions_of(path):
    """Return the names of a module: its functions, classes, their methods, and constants."""
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


def test_the_architecture_page_names_every_package_and_defined_names():
    """Each name in a paragraph is defined in one of the files that the paragraph mentions."""
    text = ARCHITECTURE.read_text("utf-8")
    packages = [f"{path.parent.relative_to(ROOT)}/" for package in ("model", "pipelines")
                for path in (ROOT / package).glob("*/__init__.py")]  # fmt: skip
    wrong = [f"the page lacks {package}" for package in packages if f"`{package}" not in text]
    for paragraph in paragraphs_of(ARCHITECTURE):
        codes = inline_code_of(paragraph)
        files = [ROOT / code for code in codes if re.fullmatch(r"[\w/]+\.py", code)]
        if files:
            names = {code for code in codes if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", code)}
            missing = names - OUTSIDE_OF_FILES - set().union(*map(definitions_of, files))
            wrong += [f"{paragraph[:40]}...: {name} is not in its files" for name in missing]
    assert not wrong, "\n".join(wrong)


def test_the_documents_list_the_defaults_by_dataset_size():
    from tt.model.training.defaults import _TABLE, choose_options
    from tt.model.transformer.config import PRESETS, TransformerConfig

    text = (ROOT / "docs/how-to/train.md").read_text("utf-8")
    for row in _TABLE:
        wanted = f"| `{row.preset}` | {row.dropout} | {row.batch_tokens:,} | {row.warmup_steps:,} "
        assert wanted in text, wanted
    for name, fields in PRESETS.items():
        width, heads, inner, dropout = (
            fields[key] for key in ("d_model", "heads", "d_ff", "dropout")
        )
        sizes = dict.fromkeys(("source_vocabulary_size", "target_vocabulary_size"), 8)
        config = TransformerConfig(**sizes, shared_vocabulary=True, **fields)
        layers = r" \| ".join(map(str, config.depths))
        wanted = rf"`{name}`[^|]*\| {layers} \| {width:,} \| {heads} \| {inner:,} \| {dropout} \|"
        assert re.search(wanted, text), wanted
    readme = (ROOT / "README.md").read_text("utf-8")
    for pairs, words in (
        (20_000, "20 thousand"),
        (200_000, "200 thousand"),
        (5_000_000, "5 million"),
    ):
        chosen = [
            choose_options({}, tokens=pairs * tokens, longest=100)
            for tokens in (16, 30)  # per sentence
        ]
        [preset] = {each["preset"] for each in chosen}
        steps = " to ".join(dict.fromkeys(f"{each['steps']:,}" for each in chosen))
        assert f"| {words} | `{preset}`, {steps} updates |" in readme


def test_the_documents_list_every_status_and_reason():
    from tt.pipelines.preprocess import filters, held_out
    from tt.pipelines.texts.results import STATUSES

    statuses = (ROOT / "docs/reference/columns.md").read_text("utf-8")
    for status in STATUSES:
        assert f"`{status}`" in statuses
    reasons = (ROOT / "docs/reference/rejections.md").read_text("utf-8")
    listed = [line for line in reasons.split("\n") if line.startswith("| `")]
    for name, value in {**vars(filters), **vars(held_out)}.items():
        if name.isupper() and isinstance(value, str) and re.fullmatch(r"[a-z]+(_[a-z]+)+", value):
            assert any(f"`{value}`" in line for line in listed), value


def test_the_page_of_table_formats_lists_the_registry():
    from tt.pipelines.tables.formats import COMPRESSED, FORMATS, INPUT_FORMATS, endings_of
    from tt.pipelines.tables.reading import READERS
    from tt.pipelines.tables.writing import WRITERS

    page = (ROOT / "docs/reference/table-formats.md").read_text("utf-8")
    rows = re.findall(r"^\| (`\..*?) \|", page, re.M)
    endings = [ending for row in rows for ending in re.findall(r"`(\.\w+)`", row)]
    assert sorted(endings) == sorted(
        ending for ending in endings_of(INPUT_FORMATS) if not ending.endswith(tuple(COMPRESSED))
    )
    assert f"may be compressed (`{'`, `'.join(COMPRESSED)}`)" in page
    [names] = re.findall(r"reads all files in this format: (.*?) \|", page)
    assert sorted(re.findall(r"`(\w+)`", names)) == sorted(INPUT_FORMATS)
    assert (READERS.keys(), WRITERS.keys()) == ({*INPUT_FORMATS}, {*FORMATS})


def test_listed_promises_have_a_page_and_tests():
    """`tests/promises.tsv` lists what the documents promise, and the tests that show it."""
    lines = (ROOT / "tests/promises.tsv").read_text("utf-8").splitlines()[1:]
    wrong = []
    for line in lines:
        pages, promise, tests = line.split("\t")
        missing = [page for page in pages.split(", ") if not (ROOT / page).is_file()]
        for test in tests.split():
            module, name = test.split("::")
            path = ROOT / module
            if not path.is_file() or f"\ndef {name}(" not in path.read_text("utf-8"):
                missing.append(test)
        if missing or not tests:
            wrong.append((promise, missing))
    assert not wrong


def test_install_page_names_the_versions_in_the_gpu_lock():
    page = (ROOT / "docs/install.md").read_text()
    lock = (ROOT / "requirements/gpu.lock").read_text()
    versions = dict(re.findall(r"^nvidia-([\w-]+)-cu12==(\d+\.\d+)\.", lock, re.MULTILINE))
    assert f"released with CUDA {versions['cuda-runtime']}, the version in" in page
    assert f"the lock contains cuDNN {versions['cudnn']}." in page
