// Search: lunr reads a dash before a word as "without it", so an option with its dashes would find nothing. All of its
// words are asked for, but for those that are in no index.
const QUERY = 2; // the kind of Material's message to its search worker
const LEFT_OUT = /^(and|as|at|by|for|from|if|in|into|no|not|of|on|only|or|the|to|with|without)$/;
const post = Worker.prototype.postMessage;
const asked = (option) => {
  const words = option.split("-").filter((word) => word && !LEFT_OUT.test(word));
  return words.length > 1 ? words.map((word) => `+${word}`).join(" ") : words.join("");
};
Worker.prototype.postMessage = function (message, ...others) {
  if (message && message.type === QUERY && typeof message.data === "string") {
    const data = message.data.replace(/(?<=^|\s)-{1,2}[\w-]*/g, asked);
    message = { ...message, data: data.replace(/(?<=\w)-+/g, " ") };
  }
  return post.call(this, message, ...others);
};

// Options in a line of code: browsers break after a dash, also between two.
document.addEventListener("DOMContentLoaded", () => {
  for (const code of document.querySelectorAll(".md-typeset :not(pre) > code")) {
    const parts = code.childElementCount ? [] : code.textContent.split(/(--[\w-]+)/);
    if (parts.length < 2) continue;
    code.replaceChildren(
      ...parts.map((part, at) => {
        if (at % 2 === 0) return part;
        const option = document.createElement("span");
        option.className = "option";
        option.textContent = part;
        return option;
      }),
    );
  }
});
