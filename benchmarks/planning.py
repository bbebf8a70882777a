"""What `bert_tf.plan` foresees, beside what its commands then take and reach.

    python benchmarks/planning.py --data_dir=DATA --hf_dir=MINILM --work_dir=RESULTS

Settings that the plan was not made with: parts of DATA's wikipedia_en, and its udhr in
all languages; from scratch, on from such a run with new words, and on from the
Hugging Face folder. The last part of wikipedia_en is held out, and UDHR's *7.txt.

Prints for each setting the minutes asked for and those that the commands took, from
the first to the end of the last, evaluation included; and the held-out bits per byte
that were foreseen, where the plan says any, and those reached. A setting that is
finished is not run again. Run it on a machine that does nothing else.
"""

import json
import pathlib
import re
import subprocess
import sys
import time
from typing import NamedTuple

from absl import app, flags
from parts.commands import command
from parts.results import REPOSITORY, environment, machine
from parts.text_records import work_folder

_HF_DIR = flags.DEFINE_string("hf_dir", None, "A checkpoint for the last setting.")
_SETTINGS = flags.DEFINE_list("settings", None, "Only these, by their names.")


class Setting(NamedTuple):
    """A job for the plan; files are in --data_dir."""

    name: str
    minutes: float
    text: str
    held_out: str = "wikipedia_en/wiki_05.xz"
    start: str | None = None  # another setting, or hf_dir
    new_tokens: int | None = None


SETTINGS = [
    Setting("part", 3.0, "wikipedia_en/wiki_01.xz"),
    Setting("whole", 6.0, "wikipedia_en/wiki_0[0-4].xz"),
    Setting("languages", 3.0, "udhr/*[!7].txt", "udhr/*7.txt"),
    Setting("on", 4.0, "wikipedia_en/wiki_02.xz", start="part", new_tokens=500),
    Setting("released", 6.0, "wikipedia_en/wiki_03.xz", start="hf_dir"),
]


def output(arguments: list[str], log: pathlib.Path) -> str:
    """What a command prints, which is kept in a file."""
    with log.open("w") as file:
        ended = subprocess.run(
            arguments,
            cwd=REPOSITORY,
            env=environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if ended.returncode:
        raise SystemExit(f"{' '.join(arguments)}\n{log.read_text()[-4000:]}")
    return log.read_text()


def run(setting: Setting, folder: pathlib.Path) -> dict:
    """The plan of a setting, then its commands."""
    result = folder / setting.name / "result.json"
    if result.exists():
        return json.loads(result.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    data = pathlib.Path(flags.FLAGS.data_dir or "")
    start = None
    if setting.start is not None:
        start = _HF_DIR.value if setting.start == "hf_dir" else None
        start = start or str(folder / setting.start / "model")
    arguments = command(
        "plan",
        input_file=data / setting.text,
        eval_file=data / setting.held_out,
        hours=setting.minutes / 60.0,
        output_dir=folder / setting.name,
        init_checkpoint=start,
        num_new_tokens=setting.new_tokens,
    )
    planned = output(arguments, folder / f"{setting.name}_plan.log")
    began = time.monotonic()
    output([*arguments, "--go"], folder / f"{setting.name}_go.log")
    minutes = (time.monotonic() - began) / 60.0
    foreseen = re.search(r"To expect: ([\d.]+)", planned)
    chosen = re.search(r"^\| (\S+).*< \|$", planned, re.MULTILINE)
    made = (folder / setting.name / "model" / "eval_results.txt").read_text()
    values = dict(line.split(" = ") for line in made.splitlines())
    found = {
        "size": chosen[1] if chosen else "",
        "minutes": minutes,
        "foreseen": float(foreseen[1]) if foreseen else None,
        "bits_per_byte": float(values["bits_per_byte"]),
    }
    result.write_text(json.dumps(found))
    return found


def main(argv: list[str]) -> None:
    """Runs the settings and prints the table."""
    del argv
    folder = work_folder()
    rows = []
    for setting in SETTINGS:
        if _SETTINGS.value and setting.name not in _SETTINGS.value:
            continue
        if setting.start == "hf_dir" and not _HF_DIR.value:
            print(f"{setting.name}: left out, it needs --hf_dir.")
            continue
        found = run(setting, folder)
        share = 100.0 * (found["minutes"] / setting.minutes - 1.0)
        foreseen = "-" if found["foreseen"] is None else f"{found['foreseen']:.2f}"
        rows.append(
            f"| {setting.name} | {found['size']} | {setting.minutes:g} |"
            f" {found['minutes']:.1f} | {share:+.0f} % | {foreseen} |"
            f" {found['bits_per_byte']:.2f} |"
        )
        print(rows[-1], file=sys.stderr, flush=True)
    print(f"\n{machine()}\n")
    print("| setting | model | minutes | taken | | bits per byte foreseen | reached |")
    print("|---|---|---:|---:|---:|---:|---:|")
    print("\n".join(rows))


if __name__ == "__main__":
    app.run(main)
