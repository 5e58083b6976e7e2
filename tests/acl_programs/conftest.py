from tests.device_fixtures import finalised, own_cache  # noqa: F401
