# SPDX-License-Identifier: Apache-2.0
"""Errors of one member, which are its own problem and do not affect other members.

A member is somebody else's machine and may answer anything, so its readers meet errors that nobody has foreseen: these
are reported with the name of the member and do not end the run.
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

#: Errors whose message says what is wrong with a member and what to do about it.
TOLD = (ProblemsError, ApiError, ApplyFailed, NotReady)
Told = ProblemsError | ApiError | ApplyFailed | NotReady
#: Characters shown of an unexpected error.
_LONGEST = 300


@contextmanager
def apart(name: str, trace: Callable[[str], None]) -> Iterator[None]:
    """Context for work on the member ``name``, which raises only ``TOLD`` and LockLost (that is of the whole run).

    Any other error becomes a problem of this member that names its type; ``trace`` gets its traceback.
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
