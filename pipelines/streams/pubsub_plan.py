"""Check a subscription and topics before a run."""

from __future__ import annotations

from typing import Any

from model.errors import require
from pipelines.streams import pubsub_clients as clients
from pipelines.streams.addresses import PubsubName
from pipelines.streams.messages import MessageFormat
from pipelines.streams.options import StreamOptions
from pipelines.streams.pubsub_member import PubsubPlan
from pipelines.streams.pubsub_messages import PubsubTarget

_DELETED_TOPIC = "_deleted-topic_"


def plan_subscription(options: StreamOptions, *, form: MessageFormat) -> PubsubPlan:
    """Check a subscription and topics; reads and writes no message.

    Args:
      options: The options of a stream from a subscription to a topic.
      form: Where the texts are in its messages.

    Raises:
      UserError: There are no credentials, Pub/Sub does not answer, or a subscription or topic does
        not exist or does not fit.
    """
    source, target, failed = options.source, options.target, options.failed
    assert isinstance(source, PubsubName)
    assert isinstance(target, PubsubName)
    assert failed is None or isinstance(failed, PubsubName)
    topics = {"`output`": target, **({} if failed is None else {"`dead_letter`": failed})}
    found = _find(source, topics)
    require(
        not (found.push_config.push_endpoint or found.bigquery_config.table or found.detached),
        f"`input` must be a subscription that is pulled: {source} pushes its messages elsewhere, "
        "or is detached. Create another subscription to its topic",
    )
    for name, topic in topics.items():
        require(
            found.topic != topic.topic,
            f"{name} is the topic of the subscription {source}, so that translations would be "
            "translated again. Choose another topic",
        )
    is_deleted = found.topic == _DELETED_TOPIC
    return PubsubPlan(
        options=options,
        source=source,
        target=PubsubTarget(output=target, dead_letter=failed, form=form),
        lines=(f"Reading {source}, a subscription to {found.topic}",),
        notices=(f"the topic of {source} was deleted: no new messages will come",) * is_deleted,
    )


def _find(source: PubsubName, topics: dict[str, PubsubName]) -> Any:
    """Return the description of a subscription, after a look at topics."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient

    clients.check_credentials()
    settings: dict[str, Any] = {"retry": None, "timeout": clients.ANSWER_SECONDS}
    name, path = f"`input` ({source})", source.subscription
    try:
        with SubscriberClient() as subscriber:
            found = subscriber.get_subscription(subscription=path, **settings)
        with PublisherClient() as publisher:
            for what, topic in topics.items():
                name, path = f"{what} ({topic})", topic.topic
                publisher.get_topic(topic=path, **settings)
    except GoogleAPICallError as error:
        raise clients.explain_error(error, name=name, path=path) from None
    return found
