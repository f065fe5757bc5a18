"""What is said of Ray's errors, and what of Ray's own printing is passed on."""

import contextlib
import io
import sys
import threading

from stepscope.load.cluster_ray import one_line
from stepscope.load.quiet_ray import without_ray


def say(text: str) -> None:
    sys.stdout.write(text)


def test_rays_printing_threads_are_not_heard_and_all_others_are() -> None:
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), without_ray(heard):
        for name in ("ray_listen_error_messages", "another"):
            printer = threading.Thread(target=say, args=("from a thread\n",), name=name)
            printer.start()
            printer.join()
        say("from here\n")
        sys.stdout.flush()
    assert heard.getvalue() == "from a thread\nfrom here\n"


def test_stdout_is_what_it_was_afterwards() -> None:
    before = sys.stdout
    with contextlib.suppress(KeyError), without_ray(before):
        raise KeyError
    assert sys.stdout is before


def test_an_error_of_rays_is_its_first_sentence() -> None:
    error = RuntimeError("\n  The actor died. The task may have run.\n\tlong state\n")
    assert one_line(error) == "RuntimeError: The actor died"
    assert one_line(RuntimeError("")) == "RuntimeError: no more is known"
    long = one_line(RuntimeError("word " * 100))
    assert len(long) < 180
    assert long.endswith("word ...")
