"""The simulated provider as a pure model: requests and instants in, answers and a ledger out.

What becomes of a message depends on the seed, the account, the recipient (or the rule that names it) and
how often its reference was submitted; never on what else happens in between. Rates and outages are the
account's, and the one place where order counts.

It must not read a clock or roll dice, and its ledger holds no address, link or body: hashes only.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from compose.simulator import answers
from compose.simulator.answers import Reply, Wire
from compose.simulator.ledger import Entry, Hasher, Ledger, Route, is_new, restored
from compose.simulator.parts import SECOND_MS, Key, Message, Outage, Rate, Request, Rule
from compose.simulator.plots import plot_for
from compose.simulator.script import TAKEN, Answer, Plot, Step
from schemas.accounts import Account

FEED_MAX = 500  # entries of one page; those of the last millisecond come whole
UNWANTED = frozenset({"bounced", "complained", "suppressed", "opted_out"})  # what a suppression feed tells

__all__ = ["Model", "Outage", "Reply", "Request", "Rule", "Wire"]


class Model:
    """All accounts of one simulated provider.

    `plots` may name a plot per recipient; then `rules`, then magic recipients, then the draw decide.
    `id_shapes`: by provider, what an id looks like that is made of 32 hex digits. `odd_ids`: ids that are not
    safe in a path (case F05), at a provider without a shape. `enforce_rates`: 429 above the accounts'
    `submits_per_s` and `lookups_per_s`.
    """

    def __init__(
        self,
        accounts: Mapping[str, Account],
        *,
        seed: int = 1,
        plots: Callable[[str], Plot | None] | None = None,
        weights: Mapping[str, int] | None = None,
        id_shapes: Mapping[str, Callable[[str], str]] | None = None,
        odd_ids: bool = False,
        enforce_rates: bool = False,
    ) -> None:
        self._accounts, self._seed, self._plots, self._weights = accounts, seed, plots, weights
        self._id_shapes = id_shapes or {}
        self._odd_ids, self._enforce_rates = odd_ids, enforce_rates
        self._hash = Hasher(seed)
        self.book = Ledger()
        self.rules: list[Rule] = []
        self.broken_credentials: set[str] = set()  # accounts that answer 401
        self.forbidden: set[str] = set()  # 403
        self.out_of_order: set[str] = set()  # 503 until taken out again
        self.outages: dict[str, Outage] = {}  # 503 in a window
        self._messages: dict[str, Message] = {}
        self._by_reference: dict[tuple[str, str], list[Message]] = {}
        self._keys: dict[tuple[str, str], Key] = {}
        self._asked: dict[tuple[str, str], int] = {}
        self._rates: dict[tuple[str, bool], Rate] = {}
        self._feeds: dict[str, list[tuple[int, str, Any, Any]]] = {}

    # submitting

    def submit(self, request: Request, now_ms: int) -> Reply:
        """One POST. Every request is one ledger line, whatever came of it."""
        refusal = self._refused(request.account, now_ms, request.credential_ok, submits=True)
        if refusal is not None:
            return self._note(request, now_ms, refusal, refusal.told)
        known = self._known(request, now_ms)
        if known is not None:
            return self._again(request, now_ms, known)
        place = self._place(request)
        count = self._asked.get(place, 0)
        self._asked[place] = count + 1
        plot = self._plot(request)
        step = plot.submits[min(count, len(plot.submits) - 1)]
        if step.answer not in TAKEN:
            return self._note(request, now_ms, answers.to_submission(step, None, now_ms), step.answer.value)
        message = self._take(place, request.reference, now_ms, plot)
        message.to, message.content = request.to, request.content
        self._remember(request.account, request.key, self._hash(request.body), message, step.working_ms)
        reply = answers.to_submission(step, _first_answer(message), now_ms)
        reply = replace(reply, about=(message,))
        return self._note(request, now_ms, reply, step.answer.value, message)

    def refuse(self, account: str, route: Route, now_ms: int) -> Reply:
        """A request that is none: 400, and its line in the ledger."""
        return self._asked_about(account, route, answers.error(400, "bad_request"), now_ms)

    def _known(self, request: Request, now_ms: int) -> Key | None:
        caps = self._accounts[request.account].capabilities
        known = self._keys.get((request.account, self._hash.shown(request.key or "")))
        is_kept = known is not None and now_ms < known.since_ms + caps.idempotency_window_ms
        return known if caps.idempotent_submit and is_kept else None

    def _again(self, request: Request, now_ms: int, known: Key) -> Reply:
        if known.body_hash != self._hash(request.body):
            reply = answers.error(409, "idempotency_mismatch")
            return self._note(request, now_ms, reply, reply.told)
        if now_ms < known.ready_ms:
            reply = answers.error(409, "in_progress", wait_ms=known.ready_ms - now_ms)
            return self._note(request, now_ms, reply, reply.told)
        reply = replace(answers.replayed(_first_answer(known.message)), about=(known.message,))
        return self._note(request, now_ms, reply, "replayed", known.message, replayed=True)

    def _remember(
        self, account: str, key: str | None, body_hash: str, message: Message, working_ms: int
    ) -> None:
        if key:
            at = message.accepted_ms
            self._keys[account, self._hash.shown(key)] = Key(body_hash, at, at + working_ms, message)

    def _place(self, request: Request) -> tuple[str, str]:
        """What counts as the same submission: the reference, or without one the recipient."""
        return request.account, self._hash.shown(request.reference) or self._hash(request.to)

    def _take(self, place: tuple[str, str], reference: str, now_ms: int, plot: Plot) -> Message:
        account, shown = place
        found = self._by_reference.setdefault(place, [])
        stem = self._hash(f"{self._seed}/{account}/{shown}/{len(found)}")
        shape = self._id_shapes.get(self._accounts[account].provider)
        if shape is None:
            shape = answers.odd_id if self._odd_ids else answers.plain_id
        message_id = shape(stem)
        message = Message(message_id, account, reference, now_ms, plot)
        self._keep(message, found)
        return message

    def _keep(self, message: Message, beside: list[Message]) -> None:
        beside.append(message)
        self._messages[message.message_id] = message
        feed = self._feeds.setdefault(message.account, [])
        for status in message.plot.statuses:
            if status.token in UNWANTED:
                at = message.accepted_ms + status.after_ms
                insort(feed, (at, message.message_id, str(status.token), status.reason or ""))

    def _note(
        self,
        request: Request,
        now_ms: int,
        reply: Reply,
        answered: str,
        message: Message | None = None,
        *,
        replayed: bool = False,
    ) -> Reply:
        self.book.add(
            Entry(
                now_ms,
                self._shown(request.account),
                Route.SUBMIT.value,
                answered,
                reply.code,
                self._hash.shown(request.reference),
                self._hash.shown(request.key) if request.key else None,
                None if message is None else message.message_id,
                replayed,
                recipient_hash=self._hash(request.to),
                body_hash=self._hash(request.body),
                not_after_ms=request.not_after_ms,
                plot=None if message is None or replayed else message.plot.to_dict(),
            )
        )
        return reply

    # asking

    def look_up(self, account: str, message_id: str, now_ms: int, *, credential_ok: bool = True) -> Reply:
        """GET by id: 404 until the visibility delay has passed."""
        refusal = self._refused(account, now_ms, credential_ok)
        if refusal is None and not self._accounts[account].capabilities.lookup_by_message_id:
            refusal = answers.error(404, "not_offered")
        if refusal is not None:
            return self._asked_about(account, Route.LOOK_UP, refusal, now_ms)
        found = self._messages.get(message_id)
        if found is None or found.account != account or not self._is_visible(found, now_ms):
            return self._asked_about(account, Route.LOOK_UP, answers.error(404, "not_found"), now_ms)
        fault = self._next_fault(found)
        described = _described(found, now_ms)
        reply = Reply(200, described) if fault is None else answers.to_look_up(fault, described, now_ms)
        return self._asked_about(account, Route.LOOK_UP, replace(reply, about=(found,)), now_ms, found)

    def search(self, account: str, reference: str, now_ms: int, *, credential_ok: bool = True) -> Reply:
        """GET by our own reference: a list, empty until the visibility delay has passed."""
        refusal = self._refused(account, now_ms, credential_ok)
        if refusal is None and not self._accounts[account].capabilities.lookup_by_reference:
            refusal = answers.error(404, "not_offered")
        if refusal is not None:
            return self._asked_about(account, Route.SEARCH, refusal, now_ms)
        under = self._by_reference.get((account, self._hash.shown(reference)), ())
        found = [m for m in under if self._is_visible(m, now_ms)]
        fault = self._next_fault(found[0]) if found else None
        if fault is None or fault.answer in (Answer.NOT_FOUND, Answer.OTHER_ID):
            # A list says «not found» by being empty, and «another one» by what it holds.
            rows = [] if fault is not None and fault.answer is Answer.NOT_FOUND else found
            other = {"reference": "another"} if fault is not None else {}
            reply = Reply(200, {"messages": [_described(m, now_ms) | other for m in rows]}, about=tuple(rows))
        else:
            reply = answers.to_look_up(fault, {}, now_ms)
        return self._asked_about(account, Route.SEARCH, reply, now_ms, found[0] if found else None)

    def window(
        self, account: str, since_ms: int, until_ms: int, now_ms: int, *, credential_ok: bool = True
    ) -> Reply:
        """The messages taken from `since_ms` to `until_ms`, newest first, those that are visible."""
        refusal = self._refused(account, now_ms, credential_ok)
        if refusal is not None:
            return self._asked_about(account, Route.SEARCH, refusal, now_ms)
        rows = [
            m
            for m in reversed(self._messages.values())
            if m.account == account and since_ms <= m.accepted_ms <= until_ms and self._is_visible(m, now_ms)
        ]
        reply = Reply(200, {"messages": [_described(m, now_ms) for m in rows]}, about=tuple(rows))
        return self._asked_about(account, Route.SEARCH, reply, now_ms)

    def batch(self, account: str, ids: list[str], now_ms: int, *, credential_ok: bool = True) -> Reply:
        """POST of several ids: those that are visible, in any order; scripted look-up faults do not apply."""
        refusal = self._refused(account, now_ms, credential_ok)
        caps = self._accounts[account].capabilities if account in self._accounts else None
        if refusal is None and caps is not None and len(ids) > caps.lookup_batch_max:
            refusal = answers.error(400, "too_many_ids")
        if refusal is not None:
            return self._asked_about(account, Route.BATCH, refusal, now_ms)
        found = [m for i in ids if (m := self._messages.get(i)) is not None and m.account == account]
        seen = tuple(m for m in found if self._is_visible(m, now_ms))
        reply = Reply(200, {"messages": [_described(m, now_ms) for m in seen]}, about=seen)
        return self._asked_about(account, Route.BATCH, reply, now_ms)

    def suppressions(self, account: str, since_ms: int, now_ms: int, *, credential_ok: bool = True) -> Reply:
        """The feed of bounces, complaints and opt-outs at or after `since_ms`, oldest first.

        `next_since_ms` asks for the rest: a page never ends within a millisecond.
        """
        refusal = self._refused(account, now_ms, credential_ok)
        if refusal is not None:
            return self._asked_about(account, Route.SUPPRESSIONS, refusal, now_ms)
        due = [e for e in self._feeds.get(account, ()) if since_ms <= e[0] <= now_ms]
        last = due[min(len(due), FEED_MAX) - 1][0] if due else since_ms
        page = [e for e in due if e[0] <= last]
        rows = [
            {"at_ms": at, "id": message_id, "to": m.to, "reference": m.reference, "status": token,
             "reason": reason or None}
            for at, message_id, token, reason in page
            if (m := self._messages[message_id])
        ]  # fmt: skip
        after = last + 1 if page else since_ms
        reply = Reply(200, {"suppressions": rows, "more": len(page) < len(due), "next_since_ms": after})
        return self._asked_about(account, Route.SUPPRESSIONS, reply, now_ms)

    # what anyone may read

    @property
    def ledger(self) -> list[Entry]:
        return self.book.entries

    def lines(self) -> list[dict[str, Any]]:
        """The ledger as plain data."""
        return self.book.lines()

    def duplicates(self) -> list[str]:
        """References under which more than one message exists."""
        return self.book.duplicates()

    def transitions(self, now_ms: int) -> list[dict[str, Any]]:
        """Every logical message with all that happened to it so far."""
        return [
            {
                "id": m.message_id,
                "account": m.account,
                "reference": self._hash.shown(m.reference),
                "transitions": [{"at_ms": a, "status": t, "reason": why} for a, t, why in m.happened(now_ms)],
            }
            for m in self._messages.values()
        ]

    def restore(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take up where a ledger file ends: messages, keys and counts are those of its writer."""
        for entry in restored(lines):
            self.book.add(entry)
            if entry.route != Route.SUBMIT or entry.answered not in _SCRIPTED:
                continue
            place = (entry.account, entry.reference or entry.recipient_hash)
            self._asked[place] = self._asked.get(place, 0) + 1
            if is_new(entry) and entry.took is not None:
                plot = Plot.from_dict(entry.plot or {})
                step = plot.submits[min(self._asked[place], len(plot.submits)) - 1]
                message = Message(entry.took, entry.account, entry.reference, entry.at_ms, plot)
                self._keep(message, self._by_reference.setdefault(place, []))
                self._remember(entry.account, entry.key, entry.body_hash, message, step.working_ms)

    # inside

    def _asked_about(
        self, account: str, route: Route, reply: Reply, now_ms: int, found: Message | None = None
    ) -> Reply:
        place = "" if found is None else self._hash.shown(found.reference)
        found_id = None if found is None else found.message_id
        self.book.add(
            Entry(
                now_ms, self._shown(account), route.value, reply.told, reply.code, place, found=found_id
            )
        )  # fmt: skip
        return reply

    def _shown(self, account: str) -> str:
        return account if account in self._accounts else "unknown"

    def _next_fault(self, message: Message) -> Step | None:
        message.asked += 1
        turn = message.asked - 1
        return message.plot.lookups[turn] if turn < len(message.plot.lookups) else None

    def _is_visible(self, message: Message, now_ms: int) -> bool:
        delay = message.plot.visible_after_ms
        if delay is None:
            delay = self._accounts[message.account].capabilities.visibility_delay_ms
        return now_ms >= message.accepted_ms + delay

    def _plot(self, request: Request) -> Plot:
        given = self._plots(request.to) if self._plots is not None else None
        ruled = next((r.plot for r in self.rules if r.matches(request)), None)
        return given or ruled or plot_for(request.to, seed=self._seed, weights=self._weights)

    def _refused(
        self, account: str, now_ms: int, credential_ok: bool, *, submits: bool = False
    ) -> Reply | None:
        if account not in self._accounts:
            return answers.error(404, "no_such_account")
        if not credential_ok or account in self.broken_credentials:
            return answers.error(401, "unauthorized")
        if account in self.forbidden:
            return answers.error(403, "forbidden")
        outage = self.outages.get(account)
        if outage is not None and outage.since_ms <= now_ms < outage.until_ms:
            wait_ms = None if outage.retry_after_s is None else outage.retry_after_s * SECOND_MS
            return answers.error(503, "unavailable", wait_ms=wait_ms)
        if account in self.out_of_order:
            return answers.error(503, "unavailable")
        if submits and self.book.is_full:
            return answers.error(503, "ledger_full")
        wait_ms = self._rate_wait_ms(account, now_ms, submits)
        return answers.error(429, "throttle", wait_ms=wait_ms) if wait_ms else None

    def _rate_wait_ms(self, account: str, now_ms: int, submits: bool) -> int:
        if not self._enforce_rates:
            return 0
        caps = self._accounts[account].capabilities
        per_s = caps.submits_per_s if submits else caps.lookups_per_s
        return self._rates.setdefault((account, submits), Rate(per_s)).wait_ms(now_ms)


_SCRIPTED = frozenset(answer.value for answer in Answer)


def _first_answer(message: Message) -> dict[str, Any]:
    _, token, _ = message.happened(message.accepted_ms)[-1]
    return {"id": message.message_id, "status": token}


def _described(message: Message, now_ms: int) -> dict[str, Any]:
    at, token, reason = message.happened(now_ms)[-1]
    return {
        "id": message.message_id,
        "reference": message.reference,
        "status": token,
        "reason": reason,
        "at_ms": at,
    }
