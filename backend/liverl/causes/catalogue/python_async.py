"""Signatures of errors of asynchronous Python: event loops, and results that nobody awaited."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="loop-running",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^RuntimeError: (?:asyncio\.run\(\) cannot be called from a running event loop|[Tt]his "
            r"event loop is already running|Cannot run the event loop while another loop is running)"
        ),
        needle="RuntimeError: ",
        title="Asynchronous code is started inside asynchronous code",
        cause=(
            "A function that verl or a server runs in its event loop starts a loop of its own "
            "(asyncio.run, run_until_complete)."
        ),
        fix=("Make the function async and await the call; or run it in a thread (asyncio.to_thread)."),
        effect=True,
        source="CPython",
        fires="RuntimeError: asyncio.run() cannot be called from a running event loop",
        spares="RuntimeError: Event loop is closed",
    ),
    Signature(
        id="loop-missing",
        component="python",
        role="general",
        where="exception",
        pattern=(r"^RuntimeError: (?:no running event loop|There is no current event loop in thread)"),
        needle="RuntimeError: ",
        title="Asynchronous code is called where no event loop runs",
        cause=("A function needs a running event loop and is called from another thread or from plain code."),
        fix=(
            "Call it with asyncio.run, or hand it to the loop of its owner "
            "(asyncio.run_coroutine_threadsafe)."
        ),
        effect=True,
        source="CPython",
        fires="RuntimeError: There is no current event loop in thread 'Thread-3'.",
        spares="RuntimeError: Event loop is closed",
    ),
    Signature(
        id="loop-other",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^RuntimeError: [^\n]{1,600}> (?:attached to a different loop|is bound to a different "
            r"event loop)"
        ),
        needle="RuntimeError: ",
        title="An asynchronous object is used in another event loop than its own",
        cause=(
            "A client, lock or queue was created in one event loop (often at import, or in another "
            "thread) and is used in another."
        ),
        fix="Create it where it is used, inside the async function.",
        effect=True,
        source="CPython",
        fires=(
            "RuntimeError: Task <Task pending name='x'> got Future <Future pending> attached to a "
            "different loop"
        ),
        spares="RuntimeError: a lock of a different loop",
    ),
    Signature(
        id="not-awaitable",
        of_versions=True,
        component="python",
        role="general",
        where="exception",
        pattern=r"^TypeError: object (?P<type>[\w.]{1,60}) can't be used in 'await' expression",
        needle=" can't be used in 'await' expression",
        title="A function that is awaited is not asynchronous (it returned {type})",
        cause=(
            "The caller awaits the result, and the function is a plain one: verl's agent loop "
            "expects async tools and agents, and versions of verl differ in which methods are "
            "async."
        ),
        fix="Define the function with async def, or call it without await.",
        effect=True,
        source="CPython",
        fires="TypeError: object dict can't be used in 'await' expression",
        spares="INFO it can be used in 'await' expressions",
    ),
    Signature(
        id="coroutine-used",
        of_versions=True,
        component="python",
        role="general",
        where="exception",
        pattern=r"^(?:Type|Attribute)Error: (?:cannot unpack non-iterable |')coroutine'? object",
        needle="coroutine",
        title="The result of an asynchronous function is used without awaiting it",
        cause="The function is async, and its caller uses what it returns as the value itself.",
        fix=(
            "Await the call, or use the plain function that the caller expects; versions of verl "
            "differ in which methods are async."
        ),
        effect=True,
        source="CPython",
        fires="AttributeError: 'coroutine' object has no attribute 'token_ids'",
        spares="AttributeError: 'Coroutine' object is closed",
    ),
)
