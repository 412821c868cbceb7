"""The ledger of loans: a row a loan, and two entries for each time that GPUs change hands.

The database writes the entries itself, with the loan and with its end: no loan lacks a side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, and_, case, func, insert, literal, or_, select, update
from sqlalchemy.orm import aliased

from controlplane.adapters.sql.engine import ReadSession, WriteSession
from controlplane.adapters.sql.scope import Run
from controlplane.adapters.sql.tables import LoanEntryRow, LoanRow, ReasonCodeRow
from controlplane.domain.ids import CycleId, InstanceId, NodeId, PoolName
from controlplane.domain.loans import Entry, Loan
from controlplane.ports import Conflict, CycleRecord

_OPENED, _CLOSED = aliased(ReasonCodeRow), aliased(ReasonCodeRow)


@dataclass(frozen=True, slots=True)
class Lent:
    """One loan as the record has it. `closed_at` is None while it is open; instants in epoch seconds."""

    loan: Loan
    opened_by: str
    closed_at: float | None
    closed_by: str | None
    close_code: str | None
    due_at: float | None = None


@dataclass(frozen=True, slots=True)
class Booked:
    """One entry: at `at` (epoch seconds) `gpus` came to `account`, or (negative) left it."""

    at: float
    loan_id: str
    account: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Balance:
    """The ledger summed up. `accounts`: GPUs by account, whose sum is zero; `broken`: loans that lack an
    entry or whose entries do not sum to zero, which a sound database cannot hold."""

    accounts: Mapping[str, int]
    broken: tuple[str, ...]


def standing(session: ReadSession, run: Run) -> Sequence[Loan]:
    """The open ones, in the order of their instances."""
    query = _with_codes().where(run.shares(LoanRow), LoanRow.closed_at.is_(None))
    return [each.loan for each in _by_instance(session, query)]


def listed(
    session: ReadSession, limit: int | None, *, open_only: bool, pool: str | None = None
) -> Sequence[Lent]:
    """Loans, the newest first. `limit` None: all. `pool`: as borrower or as lender."""
    query = _with_codes().order_by(LoanRow.opened_at.desc(), LoanRow.loan_id).limit(limit)
    if open_only:
        query = query.where(LoanRow.closed_at.is_(None))
    if pool is not None:
        query = query.where(or_(LoanRow.borrower == pool, LoanRow.lender == pool))
    return [_lent(row) for row in session.execute(query)]


def booked(session: ReadSession, limit: int, account: str | None = None) -> Sequence[Booked]:
    """Entries, the newest first; of one account or of all."""
    entry = LoanEntryRow
    query = select(entry).order_by(entry.at.desc(), entry.loan_id, entry.n.desc()).limit(limit)
    if account is not None:
        query = query.where(entry.account == account)
    return [Booked(each.at, each.loan_id, each.account, each.gpus) for each in session.scalars(query)]


def balance(session: ReadSession) -> Balance:
    """All entries, summed up. Reads every row."""
    sums = select(LoanEntryRow.account, func.sum(LoanEntryRow.gpus)).group_by(LoanEntryRow.account)
    accounts = {account: int(gpus) for account, gpus in session.execute(sums.order_by(LoanEntryRow.account))}
    return Balance(accounts, tuple(session.scalars(broken())))


def broken() -> Select[str]:
    """Asks for the ids of loans that lack an entry, or whose entries do not sum to zero."""
    entry, count = LoanEntryRow, func.count(LoanEntryRow.n)
    wanted = case((LoanRow.closed_at.is_(None), 2), else_=4)
    both = and_(entry.cluster == LoanRow.cluster, entry.loan_id == LoanRow.loan_id)
    return (
        select(LoanRow.loan_id)
        .outerjoin(entry, both)
        .group_by(LoanRow.cluster, LoanRow.loan_id, LoanRow.closed_at)
        .having(or_(func.coalesce(func.sum(entry.gpus), 0) != 0, count != wanted))
        .order_by(LoanRow.loan_id)
    )


def entries_of(session: ReadSession, cycle: CycleId) -> tuple[Entry, ...]:
    """What one cycle's plan said of loans, in its own order: closings first, then by instance."""
    mine = _with_codes().where(LoanRow.cluster == cycle.cluster)
    closed = _by_instance(session, mine.where(LoanRow.closed_by == str(cycle)))
    opened = _by_instance(session, mine.where(LoanRow.opened_by == str(cycle)))
    return (
        *(_entry(each, opens=False) for each in closed),
        *(_entry(each, opens=True) for each in opened),
    )


def _by_instance(session: ReadSession, query: Select[Any]) -> list[Lent]:
    """Sorted here: a database sorts text by its own language, and a plan's hash knows one order."""
    return sorted(map(_lent, session.execute(query)), key=lambda each: each.loan.instance)


def enter(session: WriteSession, run: Run, cycle: CycleRecord, codes: Mapping[str, int]) -> None:
    """Book what a plan says. Raises Conflict where a loan that is to be closed does not stand open."""
    for each in cycle.plan.loans:
        if each.opens:
            _open(session, run, cycle, each, codes)
        else:
            _close(session, run, cycle, each, codes)


def _open(session: WriteSession, run: Run, cycle: CycleRecord, each: Entry, codes: Mapping[str, int]) -> None:
    session.execute(
        insert(LoanRow).values(
            cluster=run.cluster,
            loan_id=f"{cycle.cycle}:{each.instance}",
            run_id=run.run_id,
            source=run.source,
            run_scope=run.scope,
            lender=each.lender,
            borrower=each.borrower,
            instance=each.instance,
            node=each.node,
            gpus=each.gpus,
            opened_at=cycle.started_at,
            opened_by=str(cycle.cycle),
            open_code_id=codes[each.code],
        )
    )


def _close(
    session: WriteSession, run: Run, cycle: CycleRecord, each: Entry, codes: Mapping[str, int]
) -> None:
    """A clock that was set back must not keep a loan open: it closes no earlier than it opened."""
    now = literal(cycle.started_at, LoanRow.opened_at.type)
    closed = session.execute(
        update(LoanRow)
        .where(run.shares(LoanRow), LoanRow.instance == each.instance, LoanRow.closed_at.is_(None))
        .values(
            closed_at=case((LoanRow.opened_at > now, LoanRow.opened_at), else_=now),
            closed_by=str(cycle.cycle),
            close_code_id=codes[each.code],
        )
        .returning(LoanRow.loan_id)
    ).all()
    if not closed:
        raise Conflict(f"{each.instance} has no open loan to close")


def _with_codes() -> Select[Any]:
    chosen: Any = select(LoanRow, _OPENED.code, _CLOSED.code)
    joined = chosen.join(_OPENED, LoanRow.open_code_id == _OPENED.code_id)
    return joined.outerjoin(_CLOSED, LoanRow.close_code_id == _CLOSED.code_id)  # type: ignore[no-any-return]


def _lent(found: Any) -> Lent:
    row, opened, closed = found
    loan = Loan(
        loan_id=row.loan_id,
        lender=PoolName(row.lender),
        borrower=PoolName(row.borrower),
        instance=InstanceId(row.instance),
        node=NodeId(row.node),
        gpus=row.gpus,
        opened_at=row.opened_at,
        code=opened,
    )
    return Lent(loan, row.opened_by, row.closed_at, row.closed_by, closed, row.due_at)


def _entry(lent: Lent, *, opens: bool) -> Entry:
    loan, code = lent.loan, lent.loan.code if opens else lent.close_code or ""
    return Entry(opens, loan.lender, loan.borrower, loan.instance, loan.node, loan.gpus, code)
