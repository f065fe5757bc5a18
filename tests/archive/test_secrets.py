import pytest

from stepscope.archive.secrets import (
    command_without_secrets,
    environment_without_secrets,
    text_without_secrets,
)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "VLLM_API_KEY",
        "DB_PASSWORD",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ],
)
def test_secret_names_lose_their_value(name: str) -> None:
    assert environment_without_secrets({name: "x"}) == {name: "<removed>"}
    assert "hush" not in text_without_secrets(f'{name} = "hush"')
    assert "hush" not in text_without_secrets(f'{{"env": {{"{name}": "hush"}}}}')


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "CUDA_VISIBLE_DEVICES", "API_KEY_ENV"],
)
def test_other_names_keep_theirs(name: str) -> None:
    assert environment_without_secrets({name: "x"}) == {name: "x"}
    assert text_without_secrets(f'{name} = "x"') == f'{name} = "x"'


@pytest.mark.parametrize(
    "command",
    [
        ("vllm", "serve", "m", "--api-key", "hush", "--port", "1"),
        ("vllm", "serve", "m", "--api-key=hush"),
        ("sglang", "--admin-api-key", "hush", "also-hush"),
        ("x", "--header", "Authorization: Bearer hush-hush-hush"),
        ("x", "http://me:hush@host"),
    ],
)
def test_secret_flags_lose_their_value(command: tuple[str, ...]) -> None:
    assert "hush" not in " ".join(command_without_secrets(command))


def test_a_command_line_in_a_text_loses_its_secrets() -> None:
    text = text_without_secrets("serve m --api-key hush --port 1 --x-token=hush")
    assert text == "serve m --api-key <removed> --port 1 --x-token=<removed>"


def test_flags_about_tokens_are_no_secrets() -> None:
    command = (
        "vllm",
        "serve",
        "m",
        "--max-num-batched-tokens",
        "8192",
        "--tokenizer",
        "t",
        "--api-key-env",
        "NAME",
    )
    assert command_without_secrets(command) == command
    assert text_without_secrets(" ".join(command)) == " ".join(command)
