// lunr reads a leading dash as "without": flags are looked up by their names.
{
  const post = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message, ...others) {
    if (typeof message?.data === "string") {
      const query = message.data.replace(/(^|\s)-+/g, "$1").replace(/=\S*/g, "");
      message = { ...message, data: query.trim() };
    }
    return post.call(this, message, ...others);
  };
}
