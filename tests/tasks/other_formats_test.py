"""Files of annotation tools and of other commands, by a small sample of each."""

from bert_tf.base.errors import InputError
from bert_tf.tasks.squad.reading import read_file
from bert_tf.tasks.swag.choices import ChoiceLayout, read_choices
from bert_tf.tasks.tables import TableSplit
from bert_tf.tasks.tagging.sentences import Layout, read_sentences
from tests.script_case import FolderCase

SQUAD = (
    '{"version": "1.1", "data": [{"title": "T", "paragraphs": [{"context": "A b.",'
    ' "qas": [{"id": "1", "question": "Q?", "answers": []}]}]}]}\n'
)
SAMPLES = {
    "doccano": '{"id": 1, "text": "EU rejects", "label": [[0, 2, "ORG"]]}\n',
    "doccano's": '{"id": 1, "text": "EU", "entities": [{"id": 3, "label": "ORG",'
    ' "start_offset": 0, "end_offset": 2}], "relations": []}\n',
    "Prodigy": '{"text": "EU rejects", "_input_hash": 1, "_task_hash": 2, "spans":'
    ' [{"start": 0, "end": 2, "label": "ORG"}], "answer": "accept"}\n',
    "Label Studio": '[{"id": 1, "annotations": [{"id": 2, "result": [{"value":'
    ' {"start": 0, "end": 2, "labels": ["ORG"]}}]}], "data": {"text": "EU"}}]\n',
    "spaCy": '["EU rejects", {"entities": [[0, 2, "ORG"]]}]\n',
    "SQuAD's JSON, which run_squad": SQUAD,
    "a table of questions": "id,question,context,answer\n1,Who?,A man.,man\n",
}


SPANS = ("doccano", "Prodigy", "Label Studio", "spaCy")


class OtherFormatsTest(FolderCase):
    def readers(self):
        return {
            "run_classifier": TableSplit(text_a="text_a", label="label").read,
            "run_ner": lambda path: read_sentences([path], Layout()),
            "run_squad": read_file,
            "run_swag": lambda path: read_choices(
                path, ChoiceLayout(), has_labels=True
            ),
        }

    def test_each_command_names_it(self):
        for command, read in self.readers().items():
            for tool, text in SAMPLES.items():
                if command == "run_squad" and text == SQUAD:
                    continue
                if command == "run_ner" and tool.startswith(SPANS):
                    read(self.write("x.json", text))
                    continue
                name = "x.txt" if text.startswith("id,") else "x.json"
                if command != "run_squad" and name == "x.txt":
                    continue  # which may well be a table to classify
                what = "texts with spans" if tool.startswith(SPANS) else tool
                with self.assertRaisesRegex(InputError, f"looks like {what}") as found:
                    read(self.write(name, text))
                self.assertNotIn("\n", str(found.exception))

    def test_what_a_command_reads_has_no_such_line(self):
        for name, text, command in (
            ("x.json", SQUAD.replace('"Q?"', "null"), "run_squad"),
            ("x.jsonl", '{"tokens": ["a"]}\n', "run_ner"),
            ("x.csv", "question,answer\nWho?,A man\n", "run_classifier"),
        ):
            with self.assertRaises(InputError) as found:
                self.readers()[command](self.write(name, text))
            self.assertNotIn("looks like", str(found.exception))
