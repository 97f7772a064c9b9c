// Pages that are read from the disk ask no other host. Browsers refuse them the worker of the theme's search, which then runs in a
// hidden frame (elsewhere https://unpkg.com/iframe-worker), and mermaid is not there: diagrams are shown as their text.
if (location.protocol === "file:") {
  window.mermaid = {
    initialize() {},
    render: async (_, text) => ({ svg: `<pre>${new Option(text).innerHTML}</pre>` }),
  }
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.answer = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside.load = (page, src) => new Promise((resolve, reject) => {
        page.body.append(Object.assign(page.createElement("script"), { src, onload: resolve, onerror: reject }))
      })
      this.inside.document.open()
      this.inside.document.write(`<!doctype html><body><script>
        postMessage = data => answer(data)
        importScripts = async (...urls) => { for (const url of urls) await load(document, url) }
      </script><script src="${url}"></script>`)
      this.inside.document.close()
      this.ready = new Promise(resolve => { frame.onload = resolve })
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
