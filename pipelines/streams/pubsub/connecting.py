"""Subscription and topics, looked at before a run."""

from __future__ import annotations

import functools
from typing import Any

from model.errors import UserError
from pipelines.streams.addresses import PubsubName
from pipelines.streams.ends import Ends
from pipelines.streams.messages import MessageFormat
from pipelines.streams.options import StreamOptions
from pipelines.streams.pubsub import clients
from pipelines.streams.pubsub.source import PubsubSource, close_leases
from pipelines.streams.pubsub.writer import PubsubTarget

_DELETED_TOPIC = "_deleted-topic_"


def connect_subscription(options: StreamOptions, *, form: MessageFormat, run: str) -> Ends:
    """Looks at a subscription and topics; reads and writes no message.

    Args:
      options: The options of a stream from a subscription to a topic.
      form: Where texts stand in its messages.
      run: Name of its `LiveRun`.

    Raises:
      UserError: There are no credentials, Pub/Sub does not answer, or a subscription or topic is
        not there or not fit.
    """
    source, target, failed = options.source, options.target, options.failed
    assert isinstance(source, PubsubName)
    assert isinstance(target, PubsubName)
    assert failed is None or isinstance(failed, PubsubName)
    found = _find_subscription(source)
    _check_subscription(found, source, {"`output`": target, "`dead_letter`": failed})
    _check_topics({"`output`": target, "`dead_letter`": failed})
    notices = []
    if found.topic == _DELETED_TOPIC:
        notices.append(f"the topic of {source} is deleted: nothing new will come")
    reader = PubsubSource(
        subscription=source,
        deadline=found.ack_deadline_seconds or 10,
        most=options.max_batch,
        run=run,
    )
    return Ends(
        sources=(reader,),
        target=PubsubTarget(output=target, dead_letter=failed, form=form, run=run),
        lines=(f"Reading {source}, a subscription to {found.topic}",),
        notices=tuple(notices),
        close=functools.partial(close_leases, reader),
    )


def _find_subscription(source: PubsubName) -> Any:
    from google.api_core.exceptions import GoogleAPICallError

    client = clients.make_subscriber()
    try:
        return client.get_subscription(
            subscription=source.subscription, retry=None, timeout=clients.ANSWER_SECONDS
        )
    except GoogleAPICallError as error:
        raise clients.explain_error(
            error, name=f"`input` ({source})", path=source.subscription
        ) from None
    finally:
        client.transport.close()


def _check_subscription(
    found: Any, source: PubsubName, topics: dict[str, PubsubName | None]
) -> None:
    if found.push_config.push_endpoint or found.bigquery_config.table or found.detached:
        raise UserError(
            f"`input` must be a subscription that is pulled: {source} pushes its messages "
            "elsewhere, or is detached. Create another subscription to its topic"
        )
    for name, topic in topics.items():
        if topic is not None and found.topic == topic.topic:
            raise UserError(
                f"{name} is the topic of the subscription {source}, so that what is written would "
                "be read again: name another"
            )


def _check_topics(topics: dict[str, PubsubName | None]) -> None:
    from google.api_core.exceptions import GoogleAPICallError

    client = clients.make_publisher()
    try:
        for name, topic in topics.items():
            if topic is None:
                continue
            try:
                client.get_topic(topic=topic.topic, retry=None, timeout=clients.ANSWER_SECONDS)
            except GoogleAPICallError as error:
                raise clients.explain_error(
                    error, name=f"{name} ({topic})", path=topic.topic
                ) from None
    finally:
        client.transport.close()
