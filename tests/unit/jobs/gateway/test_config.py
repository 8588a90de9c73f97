"""A gateway's settings: what cannot be is refused by its name before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.gateway.config import BODY_MIB_MAX, ORIGINS_MAX, ConfigError, GatewayConfig

ENV = {"SOUK_GATEWAY_CONTROL_URL": "https://souk.example", "SOUK_GATEWAY_TOKEN": "secret"}


def read(**changes: str) -> GatewayConfig:
    return GatewayConfig.from_env(ENV | {f"SOUK_GATEWAY_{name.upper()}": value for name, value in changes.items()})


def test_settings_are_read_from_the_environment_and_options_win() -> None:
    env = ENV | {"SOUK_GATEWAY_PORT": "8004", "SOUK_GATEWAY_DATA": "/srv/gateway"}
    found = GatewayConfig.from_env(env | {"SOUK_GATEWAY_CORS_ORIGINS": "https://a.example, https://b.example,"})
    assert (found.port, found.data) == (8004, Path("/srv/gateway"))
    assert found.cors_origins == ("https://a.example", "https://b.example")
    assert GatewayConfig.from_env(env, port=0, url=None).port == 0


def test_the_token_is_never_shown() -> None:
    assert "secret" not in repr(read(metrics_token="secret-too"))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("control_url", "souk.example", "SOUK_GATEWAY_CONTROL_URL must be the marketplace's address"),
        ("token", "", "SOUK_GATEWAY_TOKEN is not set"),
        ("url", "https://gateway.example", "must be a ws:// or wss:// address"),
        ("tls_cert", "/etc/cert.pem", "belong together"),
        ("cors_origins", "https://app.example/path", "must be origins"),
        ("cors_origins", "*", "must be origins"),
        ("cors_origins", ",".join(f"https://{n}.example" for n in range(ORIGINS_MAX + 1)), "must be origins"),
        ("trusted_proxies", "0.0.0.0/0", "SOUK_GATEWAY_TRUSTED_PROXIES is '0.0.0.0/0': a network of all"),
        ("port", "-1", "SOUK_GATEWAY_PORT must be at least 0"),
        ("requests_max", "0", "SOUK_GATEWAY_REQUESTS_MAX must be at least 1"),
        ("port", "eighty", "SOUK_GATEWAY_PORT must be a whole number"),
        ("body_mib_max", str(BODY_MIB_MAX + 1), f"may be {BODY_MIB_MAX} at most"),
    ],
)
def test_an_invalid_setting_is_named(name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(**{name: value})
