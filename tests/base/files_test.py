import ast
import io
import os
import pathlib
import shlex
import subprocess
from unittest import mock

import pytest
import tensorflow as tf

from bert_tf.base import files
from bert_tf.base.errors import InputError
from tests.import_floors_test import module_name, our_files
from tests.script_case import FolderCase


class ReadJsonTest(tf.test.TestCase):
    def test_what_is_not_json_is_named(self):
        path = os.path.join(self.get_temp_dir(), "x.json")
        for text, message in (
            ('{"a":\n[}', "x.json:2: not valid JSON: Expecting value"),
            ("[" * 100_000, "x.json:1: not valid JSON: .*recursion"),
            ("9" * 5_000, "x.json:1: not valid JSON: .*4300 digits"),
        ):
            pathlib.Path(path).write_text(text)
            with self.assertRaisesRegex(InputError, message):
                files.read_json(path)
        pathlib.Path(path).write_text('{"a": [1]}')
        self.assertEqual(files.read_json(path), {"a": [1]})


class RemoveTest(tf.test.TestCase):
    def test_a_link_is_removed_and_not_what_it_names(self):
        folder, link = (os.path.join(self.get_temp_dir(), n) for n in ("a", "b"))
        os.makedirs(folder)
        for target in (folder, os.path.join(folder, "nothing")):
            os.symlink(target, link)
            files.remove(link)
            self.assertFalse(os.path.lexists(link))
        self.assertTrue(os.path.isdir(folder))


class ExistsTest(tf.test.TestCase):
    def test_the_handle_of_a_preset_is_no_file(self):
        for scheme in ("hf", "kaggle", "modelscope"):
            self.assertFalse(files.exists(f"{scheme}://keras/bert/flags.json"))


class EncodingTest(FolderCase):
    def test_the_command_that_converts_a_file_works_as_printed(self):
        new = self.path("new")
        for encoding, text in (
            ("cp1252", "a\ncaf\u00e9 \u2013\n"),
            ("utf-16", "caf\u00e9\n"),
        ):
            path = self.write("it's [1].txt", text.encode(encoding))
            with self.assertRaisesRegex(InputError, "txt:[12]: not UTF-8") as caught:
                files.read_text(path)
            command = str(caught.exception).rpartition(": ")[2]
            command = command.replace("NEW_FILE", shlex.quote(new))
            subprocess.run(command, shell=True, check=True)
            self.assertEqual(files.read_text(new), text)
        with self.assertRaisesRegex(
            InputError, r"\(byte 0xff\). Convert the text to U"
        ):
            files.decoded(b"\xff", "tfds:x")
        # No encoding is said of what is no text.
        with self.assertRaisesRegex(
            InputError, r"x:1: not UTF-8 \(.*\), and with zero"
        ):
            files.decoded(b"\x7fELF\0\xff", "x")


class FullDiskTest(FolderCase):
    def test_the_file_is_named(self):
        # Linux' own full disk, to which a write fails without a name.
        with self.assertRaisesRegex(OSError, "No space left on device: '/dev/full'"):
            files.append("/dev/full", "x")
        link = self.path("v.txt.tmp-1")
        os.symlink("/dev/full", link)
        with (
            mock.patch.object(files, "temporary_name", lambda path: link),
            self.assertRaisesRegex(OSError, "No space left on device: '.*v.txt'"),
        ):
            files.write_atomically(self.path("v.txt"), "x")
        self.assertEqual(os.listdir(self.path()), [])


class PathTest(tf.test.TestCase):
    def test_a_tilde_is_the_users_folder(self):
        home = self.get_temp_dir()
        with mock.patch.dict(os.environ, {"HOME": home}):
            files.write_atomically("~/a.txt", "x")
            self.assertEqual(files.read_text("~/a.txt"), "x")
            self.assertEqual(files.glob("~/*.txt"), [os.path.join(home, "a.txt")])
        self.assertEqual(os.listdir(home), ["a.txt"])


class PathsTest(FolderCase):
    def test_commas_in_names_that_exist(self):
        for name in ("a, b.txt", "c.txt", "d,e,f.txt"):
            self.write(name, "")
        one, two, three = (self.path(n) for n in ("a, b.txt", "c.txt", "d,e,f.txt"))
        for paths in ([one], [one, two], [two, one, three], [three, three]):
            self.assertEqual(files.split_paths(",".join(paths)), paths)
        # And in the name of the folder that a file is to be in.
        self.write("g, h/i.txt", "")
        both = self.write("g, h/j,k.txt", "")
        new = [self.path("g, h/new.txt"), self.path("g, h/*"), two, both]
        self.assertEqual(files.split_paths(",".join(new)), new)
        self.assertEqual(files.split_paths("x*,y,gs://b/c"), ["x*", "y", "gs://b/c"])

    def test_a_folder_or_file_with_a_globs_characters(self):
        for name in ("run [1]/a.txt", "run [1]/b.txt", "run 1/a.txt", "x*.txt"):
            self.write(name, "")
        for pattern, wanted in (
            ("run [1]/*.txt", ["run [1]/a.txt", "run [1]/b.txt"]),
            ("run [1]/a.txt", ["run [1]/a.txt"]),
            ("x*.txt", ["x*.txt"]),
            ("run [12]/*", ["run 1/a.txt"]),
        ):
            found = files.expand_globs(self.path(pattern), "input_file")
            self.assertEqual(found, list(map(self.path, wanted)))


class RemoteFileTest(FolderCase):
    """file:// goes through the same calls as gs://."""

    # With line ends of all kinds, no text, and longer than a buffer of Python's.
    CONTENT = b"a\n\r\n" + "b\u00e9\n".encode() * 70_000 + bytes(range(256)) + b"end"

    def test_it_reads_as_pythons_own(self):
        path = self.write("x", self.CONTENT)
        ways = {
            "whole": lambda file: file.read(),
            "lines": list,
            "readlines": lambda file: file.readlines(100),
            "readline": lambda file: [file.readline(), file.readline(3), file.tell()],
            "parts": lambda file: [file.read(n) for n in (0, 1, 5, 100_000, -1, 7)],
            "at once": lambda file: [len(file.read1(10)), file.tell()],
            "peek": lambda file: (file.peek(3)[:3], file.tell()),
            "into": lambda file: [file.readinto(part := bytearray(9)), bytes(part)],
            "seek": lambda file: [
                (file.seek(offset, whence), file.tell(), file.read(4))
                for offset, whence in ((7, 0), (3, 1), (-5, 2), (0, 0), (0, 2))
            ],
            "is": lambda file: (file.readable(), file.writable(), file.seekable()),
            "text": lambda file: [
                *io.TextIOWrapper(file, "latin-1", newline=""),
            ],
            "words": lambda file: io.TextIOWrapper(file, "latin-1").read(20),
        }
        for name, way in ways.items():
            with self.subTest(name):
                found = []
                for each in (path, f"file://{path}"):
                    with files.open_binary(each) as file:
                        found.append(way(file))
                    self.assertTrue(file.closed)
                self.assertEqual(found[1], found[0])

    def test_it_writes_as_pythons_own(self):
        def flushed(file, path):
            file.write(b"a" * 10)
            file.flush()
            return pathlib.Path(path).read_bytes(), file.tell()

        def text(file, path):
            with io.TextIOWrapper(file, "utf-8", newline="\n") as writer:
                print("caf\u00e9", 1, file=writer)

        ways = {
            "whole": lambda file, path: file.write(self.CONTENT),
            "lines": lambda file, path: file.writelines([b"a\n", b"", b"b"]),
            "views": lambda file, path: file.write(memoryview(self.CONTENT)[3:9]),
            "nothing": lambda file, path: None,
            "is": lambda file, path: (file.readable(), file.writable()),
            "flushed": flushed,
            "text": text,
        }
        for name, way in ways.items():
            with self.subTest(name):
                found = []
                for number, prefix in enumerate(("", "file://")):
                    path = self.write(f"{name}{number}", "before")
                    with files.open_binary(prefix + path, "wb") as file:
                        found.append(way(file, path))
                    found.append(pathlib.Path(path).read_bytes())
                self.assertEqual(found[2:], found[:2])

    def test_a_library_that_writes_files(self):
        for number, prefix in enumerate(("", "file://")):
            path = self.path(f"made{number}")
            with files.written_locally(prefix + path) as here:
                self.assertFalse(files.is_remote(here))
                pathlib.Path(here).write_bytes(self.CONTENT)
            self.assertEqual(pathlib.Path(path).read_bytes(), self.CONTENT)
            with files.written_locally(prefix + self.path(f"dir{number}")) as here:
                pathlib.Path(here, "a", "b").mkdir(parents=True)
                pathlib.Path(here, "a", "b", "c").write_bytes(b"d")
            self.assertEqual(self.read(f"dir{number}", "a", "b", "c"), "d")
            # Nothing is left of one that fails.
            missing = self.path("missing", str(number))
            with (
                self.assertRaises(OSError),
                files.written_locally(prefix + missing) as here,
            ):
                raise OSError("x")
            self.assertFalse(os.path.exists(missing))

    def test_lines_are_added_and_changes_seen(self):
        for number, prefix in enumerate(("", "file://")):
            path = self.path(f"log{number}")
            for line in ("a\n", "\u00e9\n"):
                files.append(prefix + path, line)
            self.assertEqual(pathlib.Path(path).read_text("utf-8"), "a\n\u00e9\n")
            self.assertTrue(files.can_be_read_again(prefix + path))
        self.assertFalse(files.can_be_read_again(os.devnull))
        os.utime(path, ns=(1, 12345))
        self.assertEqual(files.time_of_change(path), 12345)

    def test_what_to_give_instead(self):
        folder = self.folder()
        for name in ("train.csv", ".hidden"):
            pathlib.Path(folder, name).touch()
        os.symlink("nowhere", f"{folder}/trail.csv")
        for path, said in (
            ("trian.csv", f"Did you mean {folder}/train.csv?"),
            ("trian.csv/", f"Did you mean {folder}/train.csv?"),
            ("hiden", f"Give another path; {folder} has: train.csv"),
        ):
            self.assertEqual(files.instead(f"{folder}/{path}"), said)
        local = (
            f"{folder}/{path}" for path in ("train.csv/x", "a*/train.csv", "a\0/b")
        )
        for path in (*local, "gs://no/such"):
            said = f"; {os.path.dirname(path)} is no folder that can be read here."
            self.assertEndsWith(files.instead(path), said)


# Python's own calls on paths, which fail on remote ones.
_OF_MODULES = {
    "os": "link listdir lstat makedirs mkdir open remove removedirs rename renames"
    " replace rmdir scandir stat symlink truncate unlink utime walk",
    "os.path": "exists getmtime getsize isdir isfile islink lexists",
    "glob": "glob iglob",
    "local_glob": "glob iglob",
    "shutil": "copy copy2 copyfile copytree disk_usage move rmtree",
    "io": "open",
    "h5py": "File",
}
_OF_PATHLIB = {
    *("exists", "glob", "is_dir", "is_file", "iterdir", "mkdir", "open", "read_bytes"),
    *("read_text", "rename", "rglob", "rmdir", "samefile", "stat", "touch", "unlink"),
    *("write_bytes", "write_text"),
}
# Module -> whose paths are never remote there.
_LOCAL = {
    "bert_tf.base.cli": "/dev/null",
    "bert_tf.base.keras_backend": "Keras' own settings",
    "bert_tf.base.parallel": "the limits of a container, /sys",
    "bert_tf.__main__": "the package's own files",
    "bert_tf.instances.compilation": "the package's own files, and their cache",
    "bert_tf.addons.teaching.notebook": "the machine that Colab lends",
    "bert_tf.addons.teaching.quickstart": "Python's library",
    "bert_tf.records.record_sets": "the work folder, which must be local",
    "bert_tf.records.tokenized_corpus": "the work folder, which must be local",
    "bert_tf.conversion.tensorflow": "a temporary link",
    "bert_tf.training.launch": "/dev/nvidia*",
    # They ask first whether it is remote.
    "bert_tf.conversion.kerashub": "h5py, and a folder that KerasHub has just written",
    "bert_tf.text.sources": "a folder's files, links followed",
    "bert_tf.training.checkpoints": "a file's second name",
}


def _own_calls(tree):
    """Line and name of each call of Python's own on paths."""
    has_pathlib = any(
        isinstance(node, ast.Import) and node.names[0].name == "pathlib"
        for node in ast.walk(tree)
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in _OF_MODULES:
            for alias in node.names:
                if alias.name in _OF_MODULES[node.module].split():
                    yield node.lineno, alias.name
        elif isinstance(node, ast.Attribute):
            module = ast.unparse(node.value)
            if node.attr in _OF_MODULES.get(module, "").split() or (
                has_pathlib
                and node.attr in _OF_PATHLIB
                and module not in ("files", "tf.io.gfile")
            ):
                yield node.lineno, f"{module}.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
            yield node.lineno, "open"


@pytest.mark.checkout
class OwnCallsTest(tf.test.TestCase):
    def test_paths_go_through_files(self):
        found = {}
        for path in our_files():
            tree = ast.parse(path.read_text("utf-8"))
            for line, name in _own_calls(tree):
                found.setdefault(module_name(path), []).append(f"{path}:{line}: {name}")
        self.assertIn("bert_tf.base.files", found)
        del found["bert_tf.base.files"]
        wrong = [found[module] for module in found if module not in _LOCAL]
        self.assertEqual(wrong, [])
        self.assertEqual({*found}, {*_LOCAL})
