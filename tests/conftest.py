import importlib.metadata

from absl import logging


def pytest_configure(config):
    try:
        importlib.metadata.version("tensorflow-tpu")
    except importlib.metadata.PackageNotFoundError:
        return
    # Keras has XLA compile `fit` where it is not told otherwise, but the XLA of this
    # build compiles for TPUs alone, and the tests run on the CPU.
    from keras.src.trainers import trainer

    trainer.model_supports_jit = lambda model: False


def pytest_collection_modifyitems(config, items):
    # tf.test.TestCase has a method of this name that is no test.
    kept = [item for item in items if item.name != "test_session"]
    config.hook.pytest_deselected(
        items=[item for item in items if item.name == "test_session"]
    )
    items[:] = kept


def pytest_runtest_setup(item):
    # As in our commands. absl's own default hangs on what was imported and run before.
    del item
    logging.set_verbosity(logging.INFO)
