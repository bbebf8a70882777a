"""JSON lines: documents, paragraphs, errors."""

import json
import os
import tempfile
from collections import Counter

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.text.readers import read_chunk
from bert_tf.text.sources import make_chunks


class JsonLinesTest(tf.test.TestCase):
    def read(self, content, name="c.jsonl", **kwargs):
        path = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), name)
        with open(path, "wb") as file:
            file.write(content.encode())
        dropped = Counter()
        lines = [
            list(line.sentences)
            for chunk in make_chunks([path], **kwargs)
            for line in read_chunk(chunk, dropped)
        ]
        return lines, dropped

    def test_objects_are_documents_and_their_lines_paragraphs(self):
        content = (
            '{"text": "One. Two.\\r\\n\\n  Three \\u00e4.\\n"}\r\n'
            "\n"
            ' {"id": 1, "text": "Vier.\u2028 Five."} \n'
            '{"text": ""}\n'
            '{"text": "Six"}'
        )
        expected = [
            [],
            *(["One.", "Two."], ["Three ä."], []),
            *(["Vier.", "Five."], []),
            *(["Six"], []),
        ]
        for chunk_bytes in range(1, len(content.encode()) + 2):
            lines, dropped = self.read(content, chunk_bytes=chunk_bytes)
            self.assertEqual(lines, expected)
            self.assertEqual(dropped, {"documents without text": 1})
        self.assertEqual(self.read("\ufeff" + content)[0], expected)

    def test_other_fields(self):
        content = '{"body": "One. Two.", "text": 1}\n'
        self.assertEqual(
            self.read(content, text_field="body", split_sentences=False)[0],
            [[], ["One. Two."], []],
        )

    def test_titles_that_begin_the_text(self):
        content = "".join(
            json.dumps({"title": title, "text": text}) + "\n"
            for title, text in (("T", "T\n\nTea.\nT"), ("T", "Tea.\nT"), ("", "Tea"))
        )
        lines, dropped = self.read(content)
        self.assertEqual(
            lines, [[], ["Tea."], ["T"], [], ["Tea."], ["T"], [], ["Tea"], []]
        )
        self.assertEqual(dropped, {"title lines": 1})

    def test_halves_of_characters(self):
        content = '{"text": "a\\ud83d\\ude00b \\ud83dc \\uDE00"}\n{"text": "\\\\ud83d"}'
        lines, dropped = self.read(content)
        self.assertEqual(
            lines, [[], ["a\U0001f600b \ufffdc \ufffd"], [], ["\\ud83d"], []]
        )
        self.assertEqual(dropped, {"halves of surrogate pairs": 2})
        self.assertEqual(self.read('{"text": "\\uDE00"}')[0], [[], ["\ufffd"], []])

    def test_errors_name_file_and_line(self):
        good = '{"text": "a"}\n'
        for line, reason in (
            ('{"text": "a"', "one JSON object on one line"),
            ("{", "one JSON object on one line"),
            ('{"text": "a"}{"text": "b"}', "one JSON object on one line"),
            ("plain text", "one JSON object on one line"),
            ('[{"text": "a"}]', "must be a JSON object. Found: list"),
            ('{"txt": "a", "n": 1}', "no field 'text'; --text_field .*: txt, n"),
            ('{"text": null}', "field 'text' must be text. Found: NoneType"),
            ("[" * 100_000, "c.jsonl:6"),
            ('{"text": "a", "n": ' + "1" * 5000 + "}", "c.jsonl:6"),
        ):
            content = good * 3 + "\n" + good + line + "\n" + good
            for chunk_bytes in (1, 10, 1 << 20):
                with self.assertRaisesRegex(InputError, reason) as raised:
                    self.read(content, chunk_bytes=chunk_bytes)
                self.assertIn("c.jsonl:6: ", str(raised.exception))

    def test_not_utf8(self):
        path = os.path.join(self.get_temp_dir(), "latin.jsonl")
        with open(path, "wb") as file:
            file.write(b'{"text": "a"}\n{"text": "\xe4"}\n')
        with self.assertRaisesRegex(InputError, r"latin.jsonl:2: not UTF-8"):
            for chunk in make_chunks([path]):
                list(read_chunk(chunk, Counter()))


if __name__ == "__main__":
    tf.test.main()
