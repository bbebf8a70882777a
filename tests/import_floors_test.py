"""The house's floors: a module imports only from lower floors or its own room."""

import ast
import functools
import pathlib

import pytest
import tensorflow as tf

from bert_tf.base import addons

pytestmark = pytest.mark.checkout
ROOT = pathlib.Path(__file__).resolve().parent.parent

SCRIPTS = 8
# When an import runs: with its module's, when a function is called, for types alone.
AT_IMPORT, LATER, NEVER = range(3)
# The longest prefix decides. A package's `__init__` is on its package's floor.
FLOORS = {
    "bert_tf.base": 0,
    "bert_tf.text": 1,
    "bert_tf.instances": 2,
    "bert_tf.records": 3,
    "bert_tf.modeling": 3,
    "bert_tf.optimization": 4,
    "bert_tf.conversion": 4,
    "bert_tf.training": 5,
    "bert_tf.tasks": 6,
    "bert_tf.addons": 7,
    "bert_tf": SCRIPTS,
    "tfrecords": SCRIPTS,
    # They run commands.
    "bert_tf.addons.teaching": SCRIPTS,
    "bert_tf.addons.study.run_paper": SCRIPTS,
}
# The package's names are in every room, and so are the processes that a command starts.
FRONT_DOORS = ("bert_tf", "bert_tf.base.cli")
ADDONS = "bert_tf.addons."
# Add-on -> those below it, which it may import.
BELOW: dict[str, tuple[str, ...]] = {
    "corpora": (),
    "methods": (),
    "planning": (),
    "serving": ("planning",),
    "study": ("planning",),
    "teaching": ("serving",),
}
# What imports nothing heavy, in itself or in what it imports: the commands, and an
# export that is opened, start at once; so do worker processes.
LIGHT_FLOORS = (0, 1, 2, SCRIPTS)
LIGHT = ("bert_tf.addons.serving.text_models",)
MOST_LINES_OF_A_COMMAND = 40


def module_name(path):
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module):
    name = module
    while name:
        if name in FLOORS:
            return FLOORS[name]
        name = name.rpartition(".")[0]
    raise AssertionError(f"{module} is on no floor")


def room_of(module):
    """`bert_tf.tasks` for it and for all modules in it and in its folders."""
    first_two = module.split(".")[:2]
    return ".".join(first_two if ROOT.joinpath(*first_two).is_dir() else first_two[:1])


@functools.cache
def imports_of(path):
    """(module, line, when it is imported) for each import."""
    tree = ast.parse(path.read_text("utf-8"))
    found = []

    def visit(node, when):
        if isinstance(node, ast.If):
            if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                when = NEVER
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            when = max(when, LATER)
        elif isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno, when) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                found.append((f"{node.module}.{alias.name}", node.lineno, when))
        for child in ast.iter_child_nodes(node):
            visit(child, when)

    visit(tree, AT_IMPORT)
    return found


def is_command(module):
    """Whether it is directly in bert_tf/ or tfrecords/, and no package."""
    parts = module.split(".")
    return (
        len(parts) == 2
        and parts[1] != "__main__"
        and not ROOT.joinpath(*parts).is_dir()
    )


def our_files():
    return sorted([*ROOT.glob("bert_tf/**/*.py"), *ROOT.glob("tfrecords/**/*.py")])


class ImportFloorsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.modules = {module_name(path): path for path in our_files()}

    def edges(self):
        for module, path in self.modules.items():
            for name, line, when in imports_of(path):
                target = name if name in self.modules else name.rpartition(".")[0]
                if target in self.modules and target != module:
                    yield module, target, f"{path.relative_to(ROOT)}:{line}", when

    def test_modules_import_only_from_lower_floors_or_their_own_room(self):
        seen = 0
        for module, target, where, _ in self.edges():
            seen += 1
            same_room = room_of(module) == room_of(target)
            if module in FRONT_DOORS:
                continue
            same_floor = floor_of(target) == floor_of(module)
            # The scripts share their command line, and the quickstart runs them.
            same_room = same_room or floor_of(module) == SCRIPTS
            self.assertTrue(
                floor_of(target) < floor_of(module) or (same_room and same_floor),
                f"{where}: {module} (floor {floor_of(module)}) imports {target}"
                f" (floor {floor_of(target)})",
            )
        self.assertGreater(seen, 10)

    def test_the_core_imports_no_addon_and_addons_few_others(self):
        """Imports within functions counted; a command starts what is in an add-on."""
        found = []
        for module, target, where, when in self.edges():
            if not target.startswith(ADDONS) or when == NEVER or module == "bert_tf":
                continue
            if module.startswith(ADDONS):
                own, other = module.split(".")[2], target.split(".")[2]
                if own != other and other not in BELOW[own]:
                    found.append(f"{where}: {own} imports {other}")
            elif not is_command(module):
                found.append(f"{where}: {module} imports {target}")
        self.assertEqual(found, [])

    def test_the_names_of_addons_are_there(self):
        for name, reference in addons.ADDONS.items():
            self.assertIn(reference.partition(":")[0], self.modules, name)
            if name not in ("beam", "jax"):  # libraries of other environments
                self.assertIsNotNone(addons.addon(name), name)

    def test_commands_parse_and_call(self):
        commands = [path for module, path in self.modules.items() if is_command(module)]
        self.assertGreater(len(commands), 25)
        for path in commands:
            count = len(path.read_text("utf-8").splitlines())
            self.assertLessEqual(count, MOST_LINES_OF_A_COMMAND, path)

    def test_there_are_no_cycles(self):
        """Imports within functions counted."""
        graph = {}
        for module, target, _, when in self.edges():
            if when != NEVER:
                graph.setdefault(module, set()).add(target)
        done, path = set(), []

        def visit(module):
            self.assertNotIn(module, path, f"cycle: {' -> '.join([*path, module])}")
            if module in done:
                return
            path.append(module)
            for target in graph.get(module, ()):
                visit(target)
            path.pop()
            done.add(module)

        for module in list(graph):
            visit(module)

    def test_low_floors_scripts_and_text_models_import_no_tensorflow(self):
        """Neither do the modules that they import when they are imported."""
        heavy = ("tensorflow", "keras", "keras_hub", "tensorflow_text", "scipy")
        targets = {}
        for module, target, where, when in self.edges():
            if when == AT_IMPORT:
                targets.setdefault(module, {})[target] = where
        way = {
            m: m
            for m in self.modules
            if floor_of(m) in LIGHT_FLOORS or m.startswith(LIGHT)
        }
        waiting = [*way]
        for module in waiting:
            path = self.modules[module]
            for name, line, when in imports_of(path):
                if when == AT_IMPORT and name.split(".")[0] in heavy:
                    where = f"{path.relative_to(ROOT)}:{line}"
                    self.fail(
                        f"{where} imports {name}, and is imported by {way[module]};"
                        " import it where it is used"
                    )
            for target, where in targets.get(module, {}).items():
                if target not in way:
                    way[target] = f"{way[module]}, {where}"
                    waiting.append(target)
        self.assertGreater(len(waiting), 100)

    def test_flags_are_known_to_the_options_and_the_command_line_alone(self):
        found = {
            module
            for module, path in self.modules.items()
            for name, _, _ in imports_of(path)
            if name == "absl.flags" or name.startswith("absl.flags.")
        }
        self.assertEqual(found, {"bert_tf.base.cli", "bert_tf.base.options"})

    def test_what_few_need_is_imported_where_it_is_used(self):
        seldom = ("matplotlib", "sklearn", "tensorflow_datasets")
        seen = set()
        for path in self.modules.values():
            for name, line, when in imports_of(path):
                package = name.split(".")[0]
                if package in seldom:
                    seen.add(package)
                    where = f"{path.relative_to(ROOT)}:{line}"
                    self.assertNotEqual(when, AT_IMPORT, f"{where}: {name} at import")
        self.assertEqual(seen, set(seldom))

    def test_benchmarks_and_examples_import_what_is_there(self):
        def defined(module):
            for node in ast.walk(ast.parse(self.modules[module].read_text("utf-8"))):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id
                elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                    yield node.name

        missing, checked = [], 0
        for path in [*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("docs/*.py")]:
            for name, line, _ in imports_of(path):
                module, _, last = name.rpartition(".")
                if not name.startswith("bert_tf.") or name in self.modules:
                    continue
                checked += 1
                if module not in self.modules or last not in {*defined(module)}:
                    missing.append(f"{path.relative_to(ROOT)}:{line}: {name}")
        self.assertEqual(missing, [])
        self.assertGreater(checked, 50)
