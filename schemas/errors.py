"""The error tree: what the machine may do wrong, each with what to do about it.

It must not hold what the world may do: that is a value with a reason (`schemas.reasons`).

    BackstopError
    ├── InvalidDestination      an address or number that is not one
    ├── SealError
    │   ├── SealBroken          not an envelope, altered, or too large
    │   ├── SealKeyUnknown      sealed under a key we do not hold (yet)
    │   ├── SealKeyShredded     sealed under a key that was destroyed
    │   └── BindingMismatch     sealed for another intent
    ├── TemplateError
    │   ├── TemplateUnknown
    │   ├── TemplateVariablesInvalid
    │   └── TemplateBroken      does not render, or differs from its manifest
    ├── PolicyError             unknown, out of bounds, or altered after release
    ├── RecordRefused           a publisher tried to produce a record that is not valid
    ├── SettingsRefused         the configuration, with everything that is wrong with it
    ├── PreflightFailed         topics, brokers or schema differ from what is needed
    ├── GuardUnavailable        the claim database cannot answer
    └── InvariantBroken         what must never be; see `scope`
"""

from __future__ import annotations

from schemas.written import shown


class BackstopError(Exception):
    """Base of every error of ours.

    `code` is a stable token for machines; `remedy` says what to do. Neither holds a secret, and nothing
    in the sentence is obeyed by a terminal, whatever file or variable a name in it came from.
    """

    remedy = "See the README, «When something fails»."

    def __init__(self, sentence: str, *, code: str = "error", remedy: str | None = None) -> None:
        super().__init__(shown(sentence))
        self.code = code
        if remedy is not None:
            self.remedy = remedy


class InvalidDestination(BackstopError):
    """Not one e-mail address or one E.164 number; `code` says what is wrong with it."""

    remedy = "Publish one plain address, or a number in E.164 form such as +447700900123."


class SealError(BackstopError):
    """The sealed payload cannot be used."""

    remedy = "Seal with the publisher helper and the key set this deployment publishes."


class SealBroken(SealError):
    """Not an envelope, altered on the way, or too large."""


class SealKeyUnknown(SealError):
    """Sealed under a key that is not in the ring: hold until it arrives."""

    remedy = "Add the private key to the dispatcher's key ring."


class SealKeyShredded(SealError):
    """Sealed under a key that was destroyed on purpose: the intent ends."""


class BindingMismatch(SealError):
    """The protected header was bound to another intent, policy, time or destination."""


class TemplateError(BackstopError):
    """A template cannot be used."""


class TemplateUnknown(TemplateError):
    """No such template version in this process's catalogue."""

    remedy = "Deploy the renderer that knows this version before publishing with it."


class TemplateVariablesInvalid(TemplateError):
    """Variables missing, null, unknown or of the wrong shape. Names only, never values."""

    remedy = "Publish exactly the variables in the version's variables.schema.json."


class TemplateBroken(TemplateError):
    """Does not render, or its files differ from the released manifest."""


class PolicyError(BackstopError):
    """A policy is unknown, out of bounds, or was altered after its release."""

    remedy = "Release a new policy version; released ones never change."


class PriceTableError(BackstopError):
    """A price table is malformed, contradicts another, or was altered after its release."""

    remedy = "Release a new version of the price table; released ones never change."


class BudgetsRefused(BackstopError):
    """The budgets file asks for something that is not counted, or contradicts itself."""

    remedy = (
        "Correct what is named in the budgets file; `schemas/budgets/default.toml` is a complete example."
    )


class RecordRefused(BackstopError):
    """A record would not be accepted by its readers, so it was not produced. `pointer` names the field."""

    remedy = "Correct the field that is named; nothing was published."

    def __init__(
        self, sentence: str, *, code: str = "invalid_field", pointer: str = "", remedy: str | None = None
    ) -> None:
        super().__init__(sentence, code=code, remedy=remedy)
        self.pointer = pointer


class SettingsRefused(BackstopError):
    """The configuration is refused; `problems` lists all that is wrong with it."""

    remedy = "Correct every line above and start again."

    def __init__(self, problems: list[str]) -> None:
        super().__init__("settings refused:\n" + "\n".join(f"  - {p}" for p in problems), code="settings")
        self.problems = problems


class FileRefused(BackstopError):
    """The file system refuses a path that a command was given."""

    remedy = "Name a path that exists, that this user may use, and on which there is room."


class PreflightFailed(BackstopError):
    """The cluster or database is not what this process needs; `differences` names each."""

    remedy = "Run `backstop topics create`, or correct the topics named above."

    def __init__(self, differences: list[str]) -> None:
        super().__init__("preflight failed:\n" + "\n".join(f"  - {d}" for d in differences), code="preflight")
        self.differences = differences


class GuardUnavailable(BackstopError):
    """The database that guards claims cannot answer: nothing may be sent."""

    remedy = "Restore the database; orders are held and resume by themselves."


class InvariantBroken(BackstopError):
    """Something that must never be.

    `scope` is `intent` when it is confined to one intent (it is quarantined) or `partition`
    when it is not (the process stops).
    """

    def __init__(self, sentence: str, *, scope: str = "intent") -> None:
        super().__init__(sentence, code="invariant_broken")
        self.scope = scope
