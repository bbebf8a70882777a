import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.records.text_input import TextOptions, text_chunks
from tests.script_case import FolderCase


class LanguageTest(FolderCase):
    def test_case_and_region_are_folded_and_no_code_is_refused(self):
        text = {"input_file": self.write("a.txt", "A.\n"), "split_sentences": True}
        for language, expected in (("DE", "de"), ("de-AT", "de"), ("zh_Hans", "zh")):
            (chunk,) = text_chunks(TextOptions(**text, language=language))
            self.assertEqual(chunk.language, expected)
        for language in ("german", "xx", "", "d3"):
            with self.assertRaisesRegex(InputError, "must be a language's code"):
                TextOptions(**text, language=language)


if __name__ == "__main__":
    tf.test.main()
