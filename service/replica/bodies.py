"""What clients of OpenAI's ask for: the bodies of completions and of chat completions, in which nothing is ignored.

A parameter that this service does not offer is refused by its name, unless its value asks for nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from service.engine.job import Conversation, Line, Prompt, SamplingParams, TokenIds

MAX_PROMPTS: Final = 256
MOST_MESSAGES: Final = 4096
MOST_LIKELIEST: Final = 20  # of the likeliest tokens that are reported in a place
USUAL_ANSWER_TOKENS: Final = 1024
"""Of an answer in a chat at most, where the request names no number: OpenAI's would be all that the context holds."""


class Body(BaseModel):
    """An object of a request. Clients send null for what they leave out."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _null_means_default(cls, body: Any) -> Any:
        return {name: value for name, value in body.items() if value is not None} if isinstance(body, dict) else body


def _list_or_one(value: object) -> str:
    return "list" if isinstance(value, list) else "one"


def _kind_of_prompt(prompt: object) -> str:
    """Judged by its first element, so that an error names the one form that was meant."""
    first = prompt[0] if isinstance(prompt, list) and prompt else None
    if isinstance(first, list):
        return "lists of tokens"
    if isinstance(first, int):
        return "tokens"
    return "texts" if isinstance(prompt, list) else "text"


Zero: TypeAlias = Annotated[float, Field(ge=0, le=0)]
One: TypeAlias = Annotated[float, Field(ge=1, le=1)]
EmptyText: TypeAlias = Annotated[str, Field(max_length=0)]
EmptyList: TypeAlias = Annotated[list[Any], Field(max_length=0)]
EmptyObject: TypeAlias = Annotated[dict[str, Any], Field(max_length=0)]
StopText: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
Stop: TypeAlias = Annotated[
    Annotated[StopText, Tag("one")] | Annotated[list[StopText], Field(max_length=16), Tag("list")],
    Discriminator(_list_or_one),
]
Tokens: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000)]
Likeliest: TypeAlias = Annotated[int, Field(ge=0, le=MOST_LIKELIEST)]
PromptText: TypeAlias = Annotated[str, Field(min_length=1)]
PromptTokens: TypeAlias = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]
Prompts: TypeAlias = Annotated[
    Annotated[PromptText, Tag("text")]
    | Annotated[list[PromptText], Field(min_length=1, max_length=MAX_PROMPTS), Tag("texts")]
    | Annotated[PromptTokens, Tag("tokens")]
    | Annotated[list[PromptTokens], Field(min_length=1, max_length=MAX_PROMPTS), Tag("lists of tokens")],
    Discriminator(_kind_of_prompt),
]


class StreamOptions(Body):
    """Of a stream.

    Attributes:
        include_usage: an event with the number of all tokens comes before the end.
        continuous_usage_stats: each event has those up to it, as with vLLM.
    """

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Literal[False] = False


class NotOffered(Body):
    """Only the value that asks for nothing is taken."""

    n: Literal[1] = 1
    frequency_penalty: Zero = 0
    presence_penalty: Zero = 0
    repetition_penalty: One = 1
    logit_bias: EmptyObject = {}
    top_k: Literal[-1, 0] = 0
    min_p: Zero = 0
    min_tokens: Literal[0] = 0
    store: Literal[False] = False
    service_tier: Literal["auto", "default"] = "auto"


class TextFormat(Body):
    type: Literal["text"] = "text"


class NotOfferedInChats(Body):
    """The same of chats."""

    modalities: list[Literal["text"]] = ["text"]
    tools: EmptyList = []
    tool_choice: Literal["none", "auto"] = "none"
    functions: EmptyList = []
    function_call: Literal["none", "auto"] = "none"
    response_format: TextFormat = TextFormat()
    reasoning_effort: Literal["none"] = "none"
    verbosity: Literal["medium"] = "medium"


class SaidOfRequests(Body):
    """Words about a request, which no answer depends on."""

    user: str = ""
    metadata: dict[str, str] = {}
    safety_identifier: str = ""
    prompt_cache_key: str = ""
    parallel_tool_calls: bool = False  # of tools, which there are none


class GenerationBody(SaidOfRequests, NotOffered):
    """What both ask for."""

    PROMPT: ClassVar[str]  # the field that is one

    model: str | None = None
    temperature: float = Field(1.0, ge=0, le=2, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Stop = []
    ignore_eos: bool = Field(False, description="Go on to the last token that is asked for.")
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    @field_validator("stream_options")
    @classmethod
    def _are_of_a_stream(cls, options: StreamOptions, info: ValidationInfo) -> StreamOptions:
        if not info.data.get("stream"):
            raise PydanticCustomError("needs_stream", "Only a stream has options: ask for it with stream true.")
        return options

    @property
    def prompts(self) -> list[Prompt]:
        """Each of them has an answer of its own."""
        raise NotImplementedError

    @property
    def likeliest(self) -> int | None:
        """So many of the likeliest tokens are reported in each place; ``None`` where no logprobs are asked for."""
        raise NotImplementedError

    @property
    def sampling(self) -> SamplingParams:
        raise NotImplementedError

    def ids(self, client_id: str | None) -> list[str | None]:
        """The caller's name for each prompt, of which the first has the one that was sent."""
        if client_id is None:
            return [None] * len(self.prompts)
        return [client_id, *(f"{client_id}.{index}" for index in range(1, len(self.prompts)))]

    def _sampling(self, max_tokens: int, **more: bool) -> SamplingParams:
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            ignore_eos=self.ignore_eos,
            logprobs=self.likeliest,
            **more,
        )


class CompletionBody(GenerationBody):
    """OpenAI's request for completions. A prompt is a text, or the ids of its tokens."""

    PROMPT = "prompt"

    prompt: Prompts
    max_tokens: Tokens = 16
    echo: bool = Field(False, description="The prompt comes before its completion.")
    logprobs: Likeliest | None = Field(
        None, description="How likely each token was, and so many others. With echo the prompt is read a token a step."
    )
    best_of: Literal[1] = 1
    suffix: EmptyText = ""

    @property
    def prompts(self) -> list[Prompt]:
        is_one = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        asked: list[Any] = [self.prompt] if is_one else list(self.prompt)
        return [Line(each) if isinstance(each, str) else TokenIds(each) for each in asked]

    @property
    def likeliest(self) -> int | None:
        return self.logprobs

    @property
    def sampling(self) -> SamplingParams:
        return self._sampling(self.max_tokens, judges_prompt=self.echo and self.logprobs is not None)


class TextPart(Body):
    type: Literal["text"]
    text: str


class Message(Body):
    """Of a conversation. Parts of a content are lines of it; a developer is what most templates call the system."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[Annotated[str, Tag("one")] | Annotated[list[TextPart], Tag("list")], Discriminator(_list_or_one)]
    name: str | None = None
    tool_calls: EmptyList = []
    annotations: EmptyList = []

    @property
    def for_template(self) -> dict[str, str]:
        content = self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)
        named = {} if self.name is None else {"name": self.name}
        return {"role": "system" if self.role == "developer" else self.role, "content": content, **named}


class ChatBody(GenerationBody, NotOfferedInChats):
    """OpenAI's request for a chat completion: the next message of a conversation, by the model's own template."""

    PROMPT = "messages"

    messages: list[Message] = Field(min_length=1, max_length=MOST_MESSAGES)
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = Field(
        None, description=f"Without this and max_tokens up to {USUAL_ANSWER_TOKENS}, or as many as there is room for."
    )
    logprobs: bool = False
    top_logprobs: Likeliest = 0

    @field_validator("top_logprobs")
    @classmethod
    def _are_of_logprobs(cls, count: int, info: ValidationInfo) -> int:
        if count and not info.data.get("logprobs"):
            raise PydanticCustomError("needs_logprobs", "They come with logprobs true alone.")
        return count

    @property
    def prompts(self) -> list[Prompt]:
        return [Conversation(message.for_template for message in self.messages)]

    @property
    def likeliest(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    @property
    def sampling(self) -> SamplingParams:
        bounds = [tokens for tokens in (self.max_tokens, self.max_completion_tokens) if tokens is not None]
        return self._sampling(min(bounds, default=USUAL_ANSWER_TOKENS), may_be_fewer=not bounds)


NOT_OFFERED: Final = frozenset(
    {
        *NotOffered.model_fields,
        *NotOfferedInChats.model_fields,
        *("best_of", "suffix", "tool_calls", "annotations", "include_obfuscation"),
    }
)
"""What is refused where it asks for something."""
