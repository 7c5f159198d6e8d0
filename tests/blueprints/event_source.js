// What a page does to follow a conversation; it reports the id and the number of each event.
const source = new EventSource("STREAM");
source.onmessage = (message) => {
  fetch(`/report?${message.lastEventId}:${JSON.parse(message.data).number}`);
};
