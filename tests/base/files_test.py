import os
import pathlib
import shlex
import subprocess
from unittest import mock

import tensorflow as tf

from bert_tf.base import files
from bert_tf.base.errors import InputError
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
