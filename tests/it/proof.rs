//! Proof of a lock (`Locked`): token, fence, name and loss are those of the lock that the call holds.

use std::time::Duration;

use etcd_client::{Txn, TxnOp};
use etcd_locked::{
    Fence, LockError, LockGuard, LockMode, Locked, Locks, LossCause, Name, Permit, Shared, Sharing,
    Token, current, etcd_locked, lock_names,
};

use crate::corner::{Corner, admitted, pass, spawn};
use crate::limit::{self, within};

lock_names! {
    pub(crate) Order = "orders/<id: u64>";
    pub(crate) Account = "accounts/<id: u64>";
    pub(crate) Stock = "stock/<sku: &str>";
}

/// Asserts that a proof agrees with `current()`; returns its name and mode.
fn said<M: LockMode>(proof: &Locked<Name, M>) -> (String, Sharing) {
    let current = current().expect("inside");
    assert_eq!(proof.token(), current.token());
    assert!(proof.is_held() && proof.remaining() > Duration::ZERO);
    let text = proof.name().text().expect("held, hence valid");
    (text.to_owned(), proof.mode())
}

#[etcd_locked("orders/<id>", locks = locks, proof = order)]
async fn template(locks: &Locks, id: u64) -> Result<(String, Sharing), LockError> {
    tokio::task::yield_now().await;
    Ok(said(order))
}

#[etcd_locked("orders/<id>", locks = locks, proof = order, shared)]
async fn reader(locks: &Locks, id: u64) -> Result<(String, Sharing), LockError> {
    let order: &Locked<Name, Shared> = order;
    Ok(said(order))
}

#[etcd_locked("orders/<id>", locks = locks, proof = order, permits = 3)]
async fn permit(locks: &Locks, id: u64) -> Result<(String, Sharing), LockError> {
    let order: &Locked<Name, Permit> = order;
    Ok(said(order))
}

#[limit::test]
async fn proof_of_a_template_is_of_the_calls_lock() {
    let (corner, [locks]) = Corner::with_engines().await;
    let text = || "orders/7".to_owned();
    let told = template(&locks, 7).await.unwrap();
    assert_eq!(told, (text(), Sharing::Exclusive));
    assert_eq!(reader(&locks, 7).await.unwrap(), (text(), Sharing::Shared));
    assert_eq!(permit(&locks, 7).await.unwrap(), (text(), Sharing::Permit));
    corner.until_empty().await;
}

/// Helper that may only run under the lock of an order.
async fn charge(order: &Locked<Order>) -> (u64, Token) {
    (order.name().id, order.token())
}

#[etcd_locked(Stock { sku: &sku }, locks = locks, proof = stock)]
async fn borrowed(locks: &Locks, mut sku: String) -> Result<(String, String), LockError> {
    sku.push('!'); // the body owns it: the proof does not borrow
    Ok((sku, shelf(stock)))
}

fn shelf(stock: &Locked<Stock<'_>>) -> String {
    stock.name().text().expect("held, hence valid").to_owned()
}

#[limit::test]
async fn a_body_may_take_what_its_name_borrows() {
    let locks = Corner::new().await.locks().await;
    let (kept, shelf) = borrowed(&locks, "nut".to_owned()).await.unwrap();
    assert_eq!((kept.as_str(), shelf.as_str()), ("nut!", "stock/nut"));
}

#[etcd_locked(Account { id: from }, Account { id: to }, locks = locks, proof = (debit, credit))]
async fn transfer(locks: &Locks, from: u64, to: u64) -> Result<[(u64, Token); 2], LockError> {
    let current = current().expect("inside");
    for account in [debit, credit] {
        assert_eq!(current.token_of(account.name()), Some(account.token()));
    }
    Ok([debit, credit].map(|account| (account.name().id, account.token())))
}

/// Row B12, checked here without the bench.
#[test]
fn attribute_adds_little_to_a_future() {
    async fn plain(id: u64) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        Ok(id)
    }

    #[etcd_locked(Order { id }, proof = order)]
    async fn guarded(id: u64) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        Ok(order.name().id)
    }

    let (plain, guarded) = (size_of_val(&plain(1)), size_of_val(&guarded(1)));
    assert!(guarded <= plain + 64, "{guarded} after {plain} bytes");
}

#[limit::test]
async fn each_of_two_names_has_its_proof() {
    let (corner, [locks]) = Corner::with_engines().await;
    // Both names of a group have the same token, unless the call waited for one: their keys share a revision.
    let [(from, one), (to, two)] = transfer(&locks, 1, 2).await.unwrap();
    assert_eq!((from, to), (1, 2));
    let [(back, three), (same, four)] = transfer(&locks, 2, 1).await.unwrap();
    assert_eq!((back, same), (2, 1));
    assert!(three > two && four > one);
    let [one, two] = transfer(&locks, 5, 5).await.unwrap();
    assert_eq!(one, two, "one lock, named twice");
    corner.until_empty().await;
}

/// Writes if the fence still holds; returns whether it did.
async fn write(corner: &Corner, fence: Fence) -> bool {
    let put = TxnOp::put(format!("{}written", corner.prefix), "x", None);
    let answer = corner.client.clone().txn(Txn::new().when([fence.into()]).and_then([put])).await;
    answer.expect("etcd answers the test's own client").succeeded()
}

#[etcd_locked("a", "b", locks = locks, proof = (_, second), on_lost = "continue")]
async fn fenced(locks: &Locks, corner: &Corner) -> Result<LossCause, LockError> {
    assert!(write(corner, second.fence()).await);
    corner.take_away("b").await;
    assert!(!write(corner, second.fence()).await, "the fence stands for another name's key");
    let cause = second.lost().await;
    assert!(!second.is_held() && second.remaining() == Duration::ZERO);
    Ok(cause)
}

#[limit::test]
async fn fence_and_loss_of_a_proof_are_of_its_own_name() {
    let (corner, [locks]) = Corner::with_engines().await;
    let cause = within("the loss", fenced(&locks, &corner)).await;
    assert_eq!(cause.unwrap(), LossCause::Gone);
}

#[limit::test]
async fn a_fence_stands_while_the_lock_is_held() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held = locks.lock("orders/7").await.unwrap();
    let token = held.token();
    assert_eq!(token.as_i64(), token.revision() << 16 | i64::from(token.handover()));
    assert!(token.revision() >= corner.owner("orders/7").await.created);
    // A reentrant lock gives the same fence.
    let inner = async { locks.lock("orders/7").reentrant().await.unwrap().fence() };
    let inner = held.hold(inner).await.unwrap();
    let fences = [held.fence(), inner];
    for fence in &fences {
        assert!(write(&corner, fence.clone()).await, "the fence fell while the lock was held");
    }
    let next = spawn(locks.lock("orders/7"));
    held.release().await.unwrap();
    let next = admitted("the next", next).await;
    assert!(next.token() > token);
    for fence in fences {
        assert!(!write(&corner, fence).await, "the fence stands for the next owner");
    }
    assert!(write(&corner, next.fence()).await);
    next.release().await.unwrap();
}

#[limit::test]
async fn a_guard_by_hand_gives_the_proof() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held: LockGuard<Order> = locks.lock(Order { id: 987_654_321 }).await.unwrap();
    assert_eq!(charge(held.locked()).await, (987_654_321, held.token()));
    let shown = format!("{:?}", held.locked());
    assert!(shown.contains("orders/<id>") && !shown.contains("987654321"), "{shown}");
    held.release().await.unwrap();
    let reader = locks.lock(Order { id: 987_654_321 }).shared().await.unwrap();
    let proof: &Locked<Order, Shared> = reader.locked();
    assert_eq!((proof.mode(), proof.token()), (Sharing::Shared, reader.token()));
    reader.release().await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn a_group_by_hand_gives_a_proof_for_each_name() {
    let (corner, [locks]) = Corner::with_engines().await;
    let call = locks.lock(Account { id: 1 }).and(Order { id: 2 }).and("x");
    let held: LockGuard<(Account, Order, Name)> = call.and_all(["y", "z"]).await.unwrap();
    let (account, order, text) = held.locked();
    assert_eq!((account.name().id, order.name().id), (1, 2));
    assert_eq!(text.name().text(), Some("x"));
    assert_eq!(held.token_of(&Account { id: 1 }), Some(account.token()));
    assert_eq!(held.token_of(&Order { id: 2 }), Some(order.token()));
    assert_eq!(held.token_of("z").map(|_| ()), Some(()));
    assert_eq!(held.token_of("w"), None);
    assert_eq!(held.tokens().count(), 5);
    held.release().await.unwrap();
    let all = |count: usize| locks.lock("a/0").and_all((1..count).map(|n| format!("a/{n}")));
    pass("32 names", all(32)).await;
    assert_matches!(all(33).await, Err(LockError::Config { .. }));
    corner.until_empty().await;
}
