// Search: lunr reads a dash before a word as "without it", and cuts words at dashes. An option is a word of its own there,
// with dashes of another code (tests/kit/site_search.py): its own entry comes first, then what begins like it, then pages
// that name it or have its words. A name with underscores or dots is a word of its own as well. Words of questions are left out: each is asked for as the beginning of a word, so that
// "a" or "do" would bring every page.
const QUERY = 2; // the kind of Material's message to its search worker
const DASH = "\u2010";
const ASKING = new Set(
  ("a after all am an and any are as at be been but by can could did do does each every for from get got had has have " +
    "how i if in into is it its just let like me mean means must my need no not of off on only or our own say says " +
    "see should since so some than that the their them then there these they this to too use want was we were what " +
    "when where which while who whom why will with would you your").split(" "),
);
const option = (name) => {
  const words = name.split("-").filter(Boolean);
  const whole = name.replaceAll("-", DASH);
  return words.length ? [`${whole}^1000`, `${whole}*^300`, ...words].join(" ") : "";
};
const TIE = "\u203f";
const named = (name) => `${name.replace(/[._]/g, TIE)}^1000 ${name.replace(/[._]+/g, " ")}`;
const asked = (text) => {
  const words = text.replace(/[?!]+(?=\s|$)/g, " ").split(/\s+/).filter(Boolean);
  const telling = words.filter((word) => !ASKING.has(word.toLowerCase()));
  return (telling.length ? telling : words)
    .map((word) => {
      if (word.startsWith("-")) return option(word);
      return /^[a-z]\w*([._]\w+)+$/i.test(word) ? named(word) : word.replace(/(?<=\w)-+/g, " ");
    })
    .join(" ");
};
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...others) {
  const found = message && message.type === QUERY && typeof message.data === "string" && !message.data.includes('"');
  return post.call(this, found ? { ...message, data: asked(message.data) } : message, ...others);
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
