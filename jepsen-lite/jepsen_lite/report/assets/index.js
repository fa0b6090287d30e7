// Filters of the table of runs. They are in the address, so a view can be linked. A served page follows its store.
"use strict";
(() => {
  const rows = [...document.querySelectorAll("tbody tr[data-workload]")];
  const filters = [...document.querySelectorAll("[data-filter]")];
  const shown = document.getElementById("shown");
  const holds = {
    workload: (row, value) => row.dataset.workload === value,
    nemesis: (row, value) => row.dataset.nemeses.split(" ").includes(value),
    verdict: (row, value) => row.dataset.verdict === value,
    text: (row, value) => row.textContent.toLowerCase().includes(value.toLowerCase()),
  };
  const apply = () => {
    let count = 0;
    for (const row of rows) {
      row.hidden = !filters.every((filter) => !filter.value || holds[filter.dataset.filter](row, filter.value));
      if (!row.hidden) count += 1;
    }
    shown.textContent = `${count} of ${rows.length} runs`;
    const chosen = new URLSearchParams(filters.filter((filter) => filter.value).map((filter) => [filter.dataset.filter, filter.value]));
    history.replaceState(null, "", chosen.size ? `#${chosen}` : location.pathname);
  };
  const given = new URLSearchParams(location.hash.slice(1));
  for (const filter of filters) {
    if (given.has(filter.dataset.filter)) filter.value = given.get(filter.dataset.filter);
    filter.addEventListener("input", apply);
  }
  apply();
  if (location.protocol.startsWith("http")) {
    const version = document.documentElement.dataset.version;
    setInterval(async () => {
      try {
        const answer = await fetch("version", { cache: "no-store" });
        if (answer.ok && (await answer.text()) !== version) location.reload();
      } catch { /* the server is gone; the page stays */ }
    }, 3000);
  }
})();
