import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.records.manifest import written_files
from bert_tf.text.sources import TextOptions, text_chunks
from tests.script_case import FolderCase


class LanguageTest(FolderCase):
    def test_case_and_region_are_folded_and_no_code_is_refused(self):
        text = {"input_file": self.write("a.txt", "A.\n"), "split_sentences": True}
        for language, expected in (("DE", "de"), ("de-AT", "de"), ("zh_Hans", "zh")):
            (chunk,) = text_chunks(
                TextOptions(**text, language=language), written_files
            )
            self.assertEqual(chunk.language, expected)
        for language in ("german", "xx", "", "d3"):
            with self.assertRaisesRegex(InputError, "must be a language's code"):
                TextOptions(**text, language=language)

    def test_a_file_that_is_named_twice(self):
        path, other = self.write("in/a.txt", "A.\n"), self.write("in/b.txt", "B.\n")
        folder = self.path("in")
        with self.assertLogs("absl", "WARNING") as logs:
            chunks = text_chunks(
                TextOptions(input_file=f"{folder},{path}"), written_files
            )
        # As the original does.
        self.assertEqual([one.source.path for one in chunks], [path, other, path])
        self.assertIn("`input_file` names 1 files that", "".join(logs.output))
        with self.assertNoLogs("absl", "WARNING"):
            text_chunks(TextOptions(input_file=folder), written_files)


if __name__ == "__main__":
    tf.test.main()
