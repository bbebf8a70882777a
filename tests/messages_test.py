"""Messages: arguments between backticks, and command lines that work as printed."""

import ast
import importlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf
from absl import flags

from bert_tf.base import cli
from tests.script_case import FolderCase

pytestmark = pytest.mark.checkout

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = json.loads((ROOT / "tests/golden/flags.json").read_text("utf-8"))
OPTIONS = {name for command in FLAGS.values() for name in command["defaults"]}
# Command lines are what they are about.
OF_COMMAND_LINES = {"cli.py", "notebook.py", "plan_commands.py", "small_data.py"}
VALUE = "\0"
COMMAND = re.compile(
    r"python -m (?=\w)|(?<!-m )pip install\b|bert-tf (?!lists)[a-z]|iconv -|\btr '"
    r"|\bhf download |gcloud [a-z]|make (?:check|test|wheel|docs|quickstart)\b"
    rf"|(?<![.\w])(?:{'|'.join(FLAGS)}) (?:--|[A-Z]{{2,}})"
)
# Every command line of a message, and an example of each value that is put into it.
EXAMPLES: dict[str, tuple[str, ...]] = {
    'python -m bert_tf.answer --checkpoint=DIR --context_file=FILE "Who ...?"': (),
    "python -m bert_tf.compare RUN RUN": (),
    f"python -m bert_tf.explain --checkpoint={VALUE} {VALUE}": ("a", "'A text.'"),
    f"python -m bert_tf.export_model --checkpoint={VALUE} --output_dir={VALUE}"
    " --format=saved_model": ("a", "a"),
    'python -m bert_tf.explain --checkpoint=DIR "A text."': (),
    'python -m bert_tf.fill_mask --checkpoint=DIR "Text with [MASK]."': (),
    f'python -m bert_tf.fill_mask --checkpoint={VALUE} "The [MASK] is closed."': ("a",),
    "python -m bert_tf.inspect_checkpoint PATH": (),
    f"python -m bert_tf.predict --checkpoint={VALUE} --input_file={VALUE}"
    f" --output_file={VALUE}": ("a", "a", "a"),
    'python -m bert_tf.plot_attention --checkpoint=DIR --output_dir=DIR "A text."': (),
    f"python -m bert_tf.run_pretraining --input_file={VALUE}/text.tfrecord"
    f" --bert_config_file={VALUE}/bert_config.json --output_dir={VALUE}/pretraining"
    " --do_train --train_batch_size=64 --learning_rate=1e-3 --num_train_steps=400"
    f" --num_warmup_steps=40 {VALUE}": ("a", "a", "a", "--distribution=default"),
    'python -m bert_tf.score --checkpoint=DIR "A sentence."': (),
    f"python -m bert_tf.tfrecords.create_pretraining_data --input_file={VALUE}/text.txt"
    f" --output_file={VALUE}/text.tfrecord --vocab_file={VALUE}/vocab.txt"
    " --max_seq_length=32 --max_predictions_per_seq=5 --dupe_factor=2"
    " --nsp_labels=exact": ("a", "a", "a"),
    "python -m bert_tf.tfrecords.create_pretraining_data --masking=dynamic"
    " --input_file=TEXT --vocab_file=VOCAB --output_file=RECORDS": (),
    "python -m bert_tf.tfrecords.inspect_records FILE": (),
    f"python -m bert_tf.tfrecords.inspect_records {VALUE}": ("a",),
    f"python -m bert_tf.tfrecords.learn_vocabulary --input_file={VALUE}/text.txt"
    f" --output_file={VALUE}/vocab.txt --vocab_size={VALUE}": ("a", "a", "300"),
    f"python -m pip install --quiet {VALUE}": ("'bert-tf[jax]'",),
    "pip install '.[train]'": (),
    "pip install 'bert-tf[beam]'": (),
    "pip install 'bert-tf[jax]'": (),
    "pip install 'bert-tf[near]'": (),
    "pip install 'bert-tf[segmenter]'": (),
    "pip install 'bert-tf[serve]'": (),
    "pip install 'bert-tf[train]'": (),
    "pip install 'bert-tf[wiki]'": (),
    "pip install huggingface_hub": (),
    "pip install tensorflow-text": (),
    f"pip install {VALUE}": ("onnxruntime",),
    "gcloud auth application-default login": (),
    f"hf download {VALUE} --local-dir FOLDER": ("google-bert/bert-base-uncased",),
    f"iconv -f {VALUE} -t UTF-8 {VALUE} > NEW_FILE": ("UTF-16", "'a b'"),
    f"tr '\\r' '\\n' < {VALUE} > NEW_FILE": ("'a b'",),
}


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def is_command(tree):
    """Whether a module does a command's work: it has its options, and their `run`."""
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == "run"
        and [argument.arg for argument in node.args.args] == ["options"]
        for node in tree.body
    )


def texts(tree, *, with_help=False):
    """(line, text) of what is printed; values in a text are `VALUE`s."""
    skipped = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            skipped.add(body[0].value)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "option":
            skipped |= set() if with_help else {*ast.walk(node)}
        if isinstance(node, ast.JoinedStr):
            skipped |= {*node.values}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (
                part.value if isinstance(part, ast.Constant) else VALUE
                for part in node.values
            )
            yield node.lineno, "".join(parts)


def flags_in(text):
    """The options, or values put into the text, that it spells as flags."""
    without_commands = re.sub(r"python -m [\w.]+( --\S+)+", "", text)
    found = re.findall(rf"(?<![\w{VALUE}-])--({VALUE}|[a-z]\w*)", without_commands)
    return [name for name in found if name in OPTIONS or name == VALUE]


class ArgumentsTest(tf.test.TestCase):
    def test_below_the_commands_no_message_has_a_flag(self):
        found = []
        for path in sorted((ROOT / "bert_tf").rglob("*.py")):
            tree = parsed(path)
            if path.name in OF_COMMAND_LINES or is_command(tree):
                continue
            found += [
                f"{path.relative_to(ROOT)}:{line}: `{name}`, not --{name}"
                for line, text in texts(tree)
                for name in flags_in(text)
            ]
        self.assertEqual(found, [])

    def test_what_counts_as_a_flag(self):
        for text, expected in (
            ("--max_seq_length=5 is (--labels)", ["max_seq_length", "labels"]),
            (f"Give --{VALUE}", [VALUE]),
            ("gunicorn: without --preload; a--b", []),
            ("python -m bert_tf.score --checkpoint=DIR", []),
        ):
            self.assertEqual(flags_in(text), expected, text)


def printed():
    """(where, the text from a command line on) of all messages."""
    for folder in ("bert_tf", "tfrecords"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, text in texts(parsed(path), with_help=True):
                text = re.sub("%[a-z]", VALUE, text)
                for match in COMMAND.finditer(text):
                    where = f"{path.relative_to(ROOT)}:{line}"
                    yield where, text[match.start() :]


def command_of(text):
    """The one of EXAMPLES that a text begins with; what follows is no part of it."""
    for command in EXAMPLES:
        rest = text.removeprefix(command)
        if rest != text and re.match("$|[);,]| (?:makes|says|shows) ", rest):
            return command
    return None


def parse_ours(module, *arguments):
    """Fails for what the command's own parser refuses."""
    cli.parse(importlib.import_module(module).run, arguments)


def check_pip(*arguments):
    """By pip's own parser; the packages are those that this one's files name."""
    from pip._internal.commands import create_command

    _, packages = create_command("install").parse_args([*arguments])
    known = "".join(
        path.read_text("utf-8")
        for path in (ROOT / "setup.cfg", *ROOT.glob("constraints*.txt"))
    )
    for package in packages:
        name, _, extra = package.rstrip("]").partition("[")
        assert name == "." or re.search(rf"\b{name}\b", known), package
        assert f"\n{extra} =\n" in known or not extra, package


def check_others(program, *arguments):
    """Another program's page knows the command and its flags, where it is installed."""
    program = shutil.which(program) or shutil.which(
        program, path=os.path.dirname(sys.executable)
    )
    if program:
        words = [word for word in arguments if word.isalpha() and word.islower()]
        page = subprocess.run(
            [program, *words, "--help"], check=True, capture_output=True, text=True
        )
        for flag in arguments:
            if flag.startswith("-"):
                assert flag in page.stdout, flag


class CommandLinesTest(FolderCase):
    def test_every_message_with_a_command_line_has_an_example(self):
        used = set()
        for where, text in printed():
            command = command_of(text)
            self.assertIsNotNone(command, f"{where}: {text!r} has none")
            used.add(command)
        self.assertEqual({*EXAMPLES} - used, set())

    def test_every_command_line_works_as_printed(self):
        path = self.write("a b", "a\rb\r".encode("utf-16"))
        for command, values in EXAMPLES.items():
            line = command
            for value in values:
                line = line.replace(VALUE, value, 1)
            with self.subTest(line=line):
                words = shlex.split(line.removeprefix("python -m "))
                if words[0] == "pip":
                    check_pip(*words[2:])
                elif words[0].startswith("bert_tf."):
                    parse_ours(*words)
                elif words[0] in ("gcloud", "hf"):
                    check_others(*words)
                else:
                    folder = os.path.dirname(path)
                    subprocess.run(line, shell=True, check=True, cwd=folder)

    def test_what_would_not_work_is_found_out(self):
        for line in ("--chekpoint=DIR", "--top_k=2", "--checkpoint=DIR --top_k=two"):
            with self.assertRaises(flags.Error):
                parse_ours("bert_tf.fill_mask", *line.split())
        for package in ("tensorflow-tekst", "bert-tf[no]"):
            with self.assertRaises(AssertionError):
                check_pip(package)
        self.assertIsNone(command_of("pip install onnx"))
        self.assertIsNone(command_of("pip install tensorflow-text."))

    def test_the_commands_of_the_help_pages_have_their_flags(self):
        found = 0
        for path in sorted([*ROOT.glob("bert_tf/*.py"), *ROOT.glob("tfrecords/*.py")]):
            page = (ast.get_docstring(parsed(path)) or "").replace("\\\n", " ")
            for line in re.findall("^    python -m (.*)", page, re.MULTILINE):
                words = shlex.split(line.replace("THRESHOLD", "0.5"), comments=True)
                with self.subTest(line=line):
                    parse_ours(*words)
                found += 1
        self.assertGreater(found, 20)
