"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const search = document.querySelector("#search"), found = document.querySelector("#found");
  const table = document.querySelector("#columns-table");
  const rows = table ? all("tr.column", table) : [], groups = table ? all("tr.group", table) : [];
  const homes = rows.map((row) => row.parentElement);
  const lists = all("[data-list]");
  let filter = "", words = [];

  document.documentElement.classList.add("js");
  rows.forEach((row, index) => { row.dataset.order = index; });

  const matches = (element) => words.every((word) => element.dataset.find.includes(word));

  function show() {
    const isPlain = !words.length && !filter && !table?.dataset.sorted;
    let shown = 0;
    for (const list of lists) list.classList.toggle("short", isPlain && list.dataset.open !== "all");
    for (const row of rows) {
      const fits = matches(row) && (!filter || row.dataset.tags.split(" ").includes(filter));
      const button = row.parentElement.querySelector(".group button");
      row.hidden = !fits || (isPlain && button?.getAttribute("aria-expanded") === "false");
      shown += fits;
    }
    for (const group of groups) group.hidden = !isPlain;
    for (const item of all(".card[data-find], .change[data-find]")) item.hidden = !matches(item);
    for (const item of all(".change")) if (words.length && !item.hidden) item.open = true;
    for (const more of all("[data-more]")) more.hidden = !isPlain || document.getElementById(more.dataset.more).dataset.open === "all";
    found.textContent = words.length || filter ? `${shown} of ${rows.length} columns` : "";
  }

  search?.addEventListener("input", () => { words = search.value.toLowerCase().split(/\s+/).filter(Boolean); show(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== search && !event.ctrlKey && !event.metaKey) { event.preventDefault(); search.focus(); }
    if (event.key === "Escape" && document.activeElement === search) { search.value = ""; words = []; show(); search.blur(); }
  });

  for (const chip of all("button[data-filter]")) chip.addEventListener("click", () => {
    filter = chip.dataset.filter;
    for (const other of all("button[data-filter]")) other.setAttribute("aria-pressed", String(other === chip));
    show();
  });

  for (const button of all(".group button")) button.addEventListener("click", () => {
    button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") === "false"));
    show();
  });

  for (const more of all("[data-more]")) more.querySelector("button").addEventListener("click", () => {
    const list = document.getElementById(more.dataset.more);
    list.dataset.open = "all";
    for (const button of all(".group button", list)) button.setAttribute("aria-expanded", "true");
    show();
  });

  function sort(head, index) {
    const next = { none: "descending", descending: "ascending", ascending: "none" };
    const order = next[head.getAttribute("aria-sort") ?? "none"];
    for (const other of all("thead th", table)) other.removeAttribute("aria-sort");
    if (order === "none") {
      delete table.dataset.sorted;
      rows.forEach((row, at) => homes[at].append(row));
      return show();
    }
    head.setAttribute("aria-sort", order);
    table.dataset.sorted = "yes";
    const sign = order === "ascending" ? 1 : -1;
    const key = (row) => row.children[index].dataset.sort ?? row.children[index].textContent.trim();
    const sorted = [...rows].sort((a, b) => sign * compare(key(a), key(b)) || a.dataset.order - b.dataset.order);
    sorted.forEach((row) => homes[0].append(row));
    show();
  }

  function compare(a, b) {
    const numbers = a !== "" && b !== "" && !isNaN(a) && !isNaN(b);
    return numbers ? Number(a) - Number(b) : a.localeCompare(b);
  }

  if (table) all("thead th", table).forEach((head, index) => head.querySelector("button")?.addEventListener("click", () => sort(head, index)));

  for (const button of all("button[data-details]")) button.addEventListener("click", () => {
    for (const item of all(".change")) item.open = button.dataset.details === "open";
  });

  async function copy(text) {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not every browser allows it for files */ }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  for (const button of all(".command button")) button.addEventListener("click", async () => {
    const done = await copy(button.nextElementSibling.textContent);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });

  function openTarget() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    if (target instanceof HTMLDetailsElement) target.open = true;
    const list = target.closest("[data-list]");
    if (list && target.classList.contains("later")) { list.dataset.open = "all"; show(); target.scrollIntoView(); }
  }
  addEventListener("hashchange", openTarget);
  show();
  openTarget();
})();
