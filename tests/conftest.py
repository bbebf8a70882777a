import gc
import sys

import pytest
from absl import logging

# Until all is imported: there is no garbage, only more and more to look through.
gc.disable()

# What takes longest comes first, so that all workers end at about the same time.
_LONG = ("/golden/", "/training/", "/modeling/", "/docs/", "/conversion/", "/tasks/")

# Their numbers, bits or speed are those of graphs that TensorFlow has optimized.
_OPTIMIZED = (
    *("/golden/", "/fused_test", "/recompute_test", "/step_test", "/xla_test"),
    *("/strategies_test", "/killed_run_test"),
)


def pytest_ignore_collect(collection_path, config):
    """Leaves out, on JAX, files without a test for it: they take as long to import."""
    if config.option.markexpr.startswith("jax") and collection_path.suffix == ".py":
        return "mark.jax" not in collection_path.read_text("utf-8") or None
    return None


def pytest_collection_modifyitems(config, items):
    # tf.test.TestCase has a method of this name that is no test.
    kept = [item for item in items if item.name != "test_session"]
    config.hook.pytest_deselected(
        items=[item for item in items if item.name == "test_session"]
    )
    items[:] = sorted(kept, key=lambda item: not any(x in item.nodeid for x in _LONG))
    keras = sys.modules.get("keras")
    if keras is not None and keras.backend.backend() == "tensorflow":
        from tensorflow.python.util import tf_stack

        # Keras has XLA compile `fit` where it is not told otherwise: seconds for each
        # tiny model; and the builds for TPUs have no XLA for CPUs.
        keras.Model._resolve_auto_jit_compile = lambda model: False
        # Each operation of a graph keeps the lines that made it, for errors in graphs:
        # within pytest's many frames a seventh of the time that tracing takes.
        nowhere = tf_stack.extract_stack()
        tf_stack.extract_stack = lambda stacklevel=1: nowhere


def pytest_collection_finish():
    # TensorFlow and the tests are a million objects that stay. Not to look through them
    # at each collection saves a fifth of the time that tracing a function takes.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True)
def _curves_are_not_drawn(request, monkeypatch):
    """Except by reporting_test: the picture takes a tenth of a tiny run's time."""
    reporting = sys.modules.get("bert_tf.training.reporting")
    if reporting is not None and not request.node.nodeid.count("/reporting_test"):
        monkeypatch.setattr(reporting, "picture", lambda *_: b"curves")


@pytest.fixture(autouse=True)
def _graphs_run_as_traced(request):
    """Except where it counts: Grappler takes a fifth of the time of a tiny run."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        is_real = any(name in request.node.nodeid for name in _OPTIMIZED)
        options = {"disable_meta_optimizer": not is_real}
        tensorflow.config.optimizer.set_experimental_options(options)


def pytest_runtest_setup(item):
    # As in our commands. absl's own default hangs on what was imported and run before.
    del item
    logging.set_verbosity(logging.INFO)
