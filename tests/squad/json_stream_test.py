"""JSON in pieces, against `json.loads` of the whole."""

import json
import os
from unittest import mock

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.squad import json_stream
from bert_tf.squad.json_stream import JsonStream

CONTENT = (
    '\ufeff{"a": [1, 23.5e-7, -456, true, null, "\\u00e4\\ud83d\\ude00 \\ud800", [],'
    " {}],"
    '\r\n\t"b" : {"c": [["ü", "\\"]"], {"d": "語 }"}]} , "e":12345678901234567890}\n '
)


def walk(stream):
    """All that is left, by walking through every object and list."""
    if stream.peek() == "{":
        return {key: walk(stream) for key in stream.members()}
    if stream.peek() == "[":
        return [walk(stream) for _ in stream.elements()]
    return stream.value()


class JsonStreamTest(tf.test.TestCase):
    def stream(self, content, num_bytes=None):
        """A stream whose pieces have `num_bytes` bytes."""
        if num_bytes is None:
            path = os.path.join(self.get_temp_dir(), "f.json")
            with open(path, "wb") as file:
                file.write(content)
            return JsonStream(path)

        def pieces(path):
            for start in range(0, len(content), num_bytes):
                yield content[start : start + num_bytes]

        with mock.patch.object(json_stream.blocks, "read_pieces", pieces):
            stream = JsonStream("f.json")
            stream.peek()
        return stream

    def test_values_wherever_the_file_is_cut(self):
        content = CONTENT.encode()
        expected = json.loads(CONTENT.removeprefix("\ufeff"))
        for num_bytes in (None, *range(1, len(content) + 1)):
            for read in (walk, JsonStream.value):
                stream = self.stream(content, num_bytes)
                self.assertEqual(read(stream), expected)
                stream.finish()

    def test_errors_wherever_the_file_is_cut(self):
        for content, reason in (
            ('{"a":\n [1, 2,, 3]}', ":2:8: not valid JSON: Expecting value."),
            ('{"a" 1}', ":1:6: not valid JSON: ':' must be here."),
            ('{"a": 1 "b": 2}', ":1:9: not valid JSON: ',' or '}' must be here."),
            ('{a: 1}', ":1:2: not valid JSON: a key in quotes must be here."),
            ('[tru, "long long long long"]', ":1:2: not valid JSON: Expecting value."),
            ('["a\nb"]', ":1:4: not valid JSON: Invalid control character at."),
            ('\n["ab', ":2:2: not valid JSON: Unterminated string starting at."),
            ('["ab", ', ":1:8: not valid JSON: the file ends too early."),
            ('["ab"', ":1:6: not valid JSON: the file ends too early."),
            ("", ":1:1: not valid JSON: the file ends too early."),
            ('{"a": 1}\n{"a": 2}', ":2:1: not valid JSON: the file must end here."),
        ):  # fmt: skip
            for num_bytes in (None, *range(1, len(content) + 1)):
                stream = self.stream(content.encode(), num_bytes)
                with self.assertRaises(InputError) as raised:
                    walk(stream)
                    stream.finish()
                self.assertEndsWith(str(raised.exception), "f.json" + reason)

    def test_a_value_that_is_not_json_is_placed_within(self):
        stream = self.stream(b"[1,\n [2,\n  [3,, 4]]]")
        with self.assertRaisesRegex(InputError, r":3:6: not valid JSON: Expecting val"):
            stream.value()

    def test_what_python_cannot_hold(self):
        for content in ("[" * 100_000, "[" + "1" * 5_000 + "]"):
            with self.assertRaisesRegex(InputError, r":1:\d: not valid JSON") as raised:
                self.stream(content.encode()).value()
            self.assertNotIn("\n", str(raised.exception))

    def test_other_encodings(self):
        for content, place in (
            ('["ü"]'.encode("latin-1"), r"f.json:1: not UTF-8 \(byte 0xfc\)"),
            ('[1,\n\n"语'.encode()[:-1], r"f.json:3: not UTF-8 \(byte 0xe8\)"),
            ('["a"]'.encode("utf-16"), r"f.json:1: not UTF-8 \(byte 0xff\)"),
        ):
            for num_bytes in (None, *range(1, len(content))):
                with self.assertRaisesRegex(InputError, place):
                    walk(self.stream(content, num_bytes))

    def test_what_is_read_again_grows_with_the_value_alone(self):
        """A value over n pieces is not decoded n times."""
        content = json.dumps(list(range(5_000))).encode()
        stream = self.stream(content, 16)
        with mock.patch.object(
            json_stream, "_decode", side_effect=json_stream._decode
        ) as decode:
            self.assertLen(stream.value(), 5_000)
        self.assertLess(decode.call_count, 20)


if __name__ == "__main__":
    tf.test.main()
