def pytest_collection_modifyitems(config, items):
    # tf.test.TestCase has a method of this name that is no test.
    kept = [item for item in items if item.name != "test_session"]
    config.hook.pytest_deselected(
        items=[item for item in items if item.name == "test_session"]
    )
    items[:] = kept
