"""What a subscriber of the bus may count on."""

from __future__ import annotations

import asyncio
import contextvars
import threading

from gputop.sampling.bus import Bus

WHERE: contextvars.ContextVar[str] = contextvars.ContextVar("WHERE", default="nowhere")


def test_what_draws_is_called_once_with_the_newest() -> None:
    async def main() -> list[int]:
        bus, seen = Bus(), list[int]()
        bus.subscribe(int, seen.append)
        bus.attach(asyncio.get_running_loop())
        for n in range(5):
            bus.publish(n)
        await asyncio.sleep(0)
        return seen

    assert asyncio.run(main()) == [4]


def test_a_handler_runs_in_the_context_of_the_application_not_of_the_publishing_thread() -> None:
    async def main() -> str:
        bus, seen = Bus(), list[str]()
        bus.subscribe(int, lambda _: seen.append(WHERE.get()))
        WHERE.set("application")
        bus.attach(asyncio.get_running_loop())
        publisher = threading.Thread(target=bus.publish, args=(1,))
        publisher.start()
        publisher.join()
        await asyncio.sleep(0)
        return seen[0]

    assert asyncio.run(main()) == "application"


def test_what_one_handler_raises_is_reported_and_the_next_message_arrives() -> None:
    async def main() -> tuple[list[str], list[int]]:
        bus, errors, seen = Bus(), list[str](), list[int]()

        def fails(number: int) -> None:
            if number == 1:
                raise RuntimeError("a fault of ours")
            seen.append(number)

        bus.subscribe(int, fails, every=True)
        bus.attach(asyncio.get_running_loop(), on_error=lambda error: errors.append(str(error)))
        bus.publish(1)
        bus.publish(2)
        await asyncio.sleep(0)
        return errors, seen

    assert asyncio.run(main()) == (["a fault of ours"], [2])
