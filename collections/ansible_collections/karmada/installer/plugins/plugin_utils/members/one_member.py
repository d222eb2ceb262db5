# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with one member is its own problem, whatever it is, and keeps no other member from its due.

A member is somebody else's machine. What it answers may be anything, and whoever reads it meets what nobody has thought
of: that is told of this member, by its name, and is no end of the run.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..kube.apply import ApplyFailed
from ..kube.errors import ApiError
from ..kube.lease import LockLost
from ..kube.wait import NotReady
from ..problems import Problem, ProblemsError, Reason
from ..redaction import printable, redacted

#: What says for itself what is wrong with a member and what to do about it.
TOLD = (ProblemsError, ApiError, ApplyFailed, NotReady)
Told = ProblemsError | ApiError | ApplyFailed | NotReady
#: Characters of what an error says that nobody has thought of.
_LONGEST = 300


@contextmanager
def apart(name: str, trace: Callable[[str], None]) -> Iterator[None]:
    """Work on the member ``name``: what is raised in it is one of ``TOLD``, and LockLost, which is of the whole run.

    Any other error becomes a problem of this member that names its type; ``trace`` gets the traceback of it.
    """
    try:
        yield
    except (*TOLD, LockLost):
        raise
    except Exception as error:
        trace(f"member {name}: {redacted(''.join(traceback.format_exception(error)))}")
        said = printable(redacted(str(error)), _LONGEST)
        raise ProblemsError(
            Problem(
                what=f"what it holds or answers cannot be worked with: {type(error).__name__}"
                + (f" ({said})" if said else ""),
                where=f"member {name}",
                remedy="see what answers at its address, and what is in its objects; ansible-playbook -vvv shows where "
                "this was met, which helps to report it if the member is as it should be",
                reason=Reason.UNUSABLE_ANSWER,
            ),
            consequence="what was done there before stays, and the next run goes on from it",
        ) from error
