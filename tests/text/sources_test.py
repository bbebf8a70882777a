"""Sources: files, globs, folders; formats; chunks."""

import gzip
import os
import tempfile

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.text.sources import find_sources, make_chunks

WIKI = '<doc id="1" url="u" title="T">\nT\n</doc>\n'


class SourcesTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(dir=self.get_temp_dir())

    def write(self, name, content=b"a\n"):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path


class FindSourcesTest(SourcesTestCase):
    def find(self, *patterns):
        joined = ",".join(os.path.join(self.folder, pattern) for pattern in patterns)
        return [os.path.relpath(p, self.folder) for p in find_sources(joined, "input")]

    def test_files_globs_and_folders_in_the_order_given(self):
        for name in ("b.txt", "a.txt", "w/AB/wiki_00", "w/AA/wiki_01", "w/AA/wiki_00"):
            self.write(name)
        for name in ("w/.hidden", "w/_SUCCESS", "w/.git/c", "w/_old/wiki_00"):
            self.write(name)
        wiki = ["w/AA/wiki_00", "w/AA/wiki_01", "w/AB/wiki_00"]
        self.assertEqual(self.find("b.txt", "a.txt"), ["b.txt", "a.txt"])
        self.assertEqual(self.find("*.txt", "w"), ["a.txt", "b.txt", *wiki])
        self.assertEqual(self.find("w/A*"), wiki)
        self.assertEqual(self.find("w/_*"), ["w/_SUCCESS", "w/_old/wiki_00"])
        self.assertEqual(self.find("a.txt", "a.txt"), ["a.txt", "a.txt"])

    def test_names_with_brackets(self):
        self.write("a[1].txt")
        self.write("a1.txt")
        self.assertEqual(self.find("a[1].txt"), ["a[1].txt"])
        self.assertEqual(self.find("a[0-9].txt"), ["a1.txt"])

    def test_links_to_folders_are_followed_but_not_in_circles(self):
        self.write("real/a")
        os.makedirs(os.path.join(self.folder, "top"))
        for name, target in (("top/x", "real"), ("top/y", "top")):
            link = os.path.join(self.folder, name)
            os.symlink(os.path.join(self.folder, target), link)
            self.addCleanup(os.remove, link)
        self.assertEqual(self.find("top"), ["top/x/a"])

    def test_remote_folders(self):
        for name in ("B/b", "A/a", "A/_b", ".c/c"):
            self.write(name)
        remote = "file://" + self.folder
        self.assertEqual(
            find_sources(remote, "input"), [remote + "/A/a", remote + "/B/b"]
        )
        self.assertEqual(find_sources(remote + "/A/*", "input")[-1], remote + "/A/a")

    def test_nothing_there(self):
        os.makedirs(os.path.join(self.folder, "empty"))
        with self.assertRaisesRegex(InputError, "--input: no file matches .*nowhere"):
            self.find("nowhere")
        with self.assertRaisesRegex(InputError, "--input: there is no file in .*empty"):
            self.find("empty")
        with self.assertRaisesRegex(InputError, "--input: no file matches ''"):
            find_sources("", "input")


class MakeChunksTest(SourcesTestCase):
    def format_of(self, name, content, **kwargs):
        return make_chunks([self.write(name, content)], **kwargs)[0].source.input_format

    def test_formats_by_name_and_first_line(self):
        for name, content, expected in (
            ("a.txt", "a\n", "text"),
            ("a.txt", "", "text"),
            ("a.txt", "\n\n", "text"),
            ("a", WIKI, "wikiextractor"),
            ("a.txt", "\n\n" + WIKI, "wikiextractor"),
            ("a", "\ufeff" + WIKI, "wikiextractor"),
            ("a.gz", gzip.compress(WIKI.encode()), "wikiextractor"),
            ("a", "<doc >\n", "text"),
            ("a", "<doctor id=\n", "text"),
            ("a", "<doc \nid=", "text"),
            ("a", '{"text": "a"}\n', "text"),
            ("a.jsonl", WIKI, "jsonl"),
            ("a.json", "", "jsonl"),
            ("a.ndjson.gz", b"not read", "jsonl"),
            ("a.jsonl.txt", "", "text"),
        ):
            self.assertEqual(self.format_of(name, content), expected, (name, content))
        self.assertEqual(self.format_of("a.jsonl", WIKI, input_format="text"), "text")

    def test_sizes(self):
        path = self.write("a.txt", b"0123456789")
        packed = self.write("b.txt.gz", gzip.compress(b"0123456789" * 9))
        packed_bytes = os.path.getsize(packed)

        def shapes(paths, **kwargs):
            return [
                (chunk.start, chunk.stop, chunk.num_bytes)
                for chunk in make_chunks(paths, **kwargs)
            ]

        self.assertEqual(
            shapes([path], chunk_bytes=4), [(0, 4, 4), (4, 8, 4), (8, None, 2)]
        )
        self.assertEqual(shapes([path], chunk_bytes=5), [(0, 5, 5), (5, None, 5)])
        self.assertEqual(
            shapes([path, packed]), [(0, None, 10), (0, None, packed_bytes)]
        )
        self.assertEqual(shapes([packed], chunk_bytes=4), [(0, None, packed_bytes)])
        self.assertEqual(
            shapes([path], chunk_bytes=4, whole_files=True), [(0, None, 10)]
        )
        self.assertEqual(shapes([self.write("c.txt", "")]), [(0, None, 0)])

    def test_who_is_split(self):
        paths = [self.write("a.txt"), self.write("b.jsonl"), self.write("c", WIKI)]

        def languages(**kwargs):
            return [chunk.language for chunk in make_chunks(paths, **kwargs)]

        self.assertEqual(languages(), ["", "en", "en"])
        self.assertEqual(languages(language="de"), ["", "de", "de"])
        self.assertEqual(languages(split_sentences=True), ["en"] * 3)
        self.assertEqual(languages(split_sentences=False), [""] * 3)

    def test_languages_without_rules_are_said_once(self):
        paths = [self.write("a.jsonl"), self.write("b.jsonl")]
        with self.assertLogs("absl", "WARNING") as logs:
            make_chunks(paths, language="tlh")
        self.assertLen(logs.output, 1)
        self.assertIn("no rules for splitting 'tlh'", logs.output[0])
        with self.assertNoLogs("absl", "WARNING"):
            make_chunks(paths, language="de")

    def test_errors(self):
        with self.assertRaisesRegex(InputError, "No such input file: nowhere.txt"):
            make_chunks(["nowhere.txt"])
        with self.assertRaisesRegex(InputError, "is a folder"):
            make_chunks([self.folder])
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        with self.assertRaisesRegex(InputError, "is a pipe or a device.*/pipe"):
            make_chunks([pipe])
        with self.assertRaisesRegex(InputError, "a.gz: damaged, or not a .gz file"):
            make_chunks([self.write("a.gz", b"plain")])
        with self.assertRaisesRegex(ValueError, "`input_format` must be.*'tsv'"):
            make_chunks([], input_format="tsv")
        with self.assertRaisesRegex(ValueError, "`chunk_bytes`.*Received: 0"):
            make_chunks([], chunk_bytes=0)
        with self.assertRaisesRegex(ValueError, "`language`"):
            make_chunks([self.write("a.jsonl")], language="")


if __name__ == "__main__":
    tf.test.main()
